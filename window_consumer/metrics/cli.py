"""``window-consumer metrics``: the list of all metrics."""

from __future__ import annotations

import click

from window_consumer.metrics.exposition import metrics_page


@click.command("metrics")
def metrics_command() -> int:
    """Print the list of all metrics, in Markdown, which is the page docs/metrics.md."""
    click.echo(metrics_page().rstrip())
    return 0
