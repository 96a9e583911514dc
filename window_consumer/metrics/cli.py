"""``window-consumer metrics``: the list of all metrics."""

from __future__ import annotations

import click

from window_consumer.cli import options
from window_consumer.metrics.exposition import metrics_page
from window_consumer.plan.feature_list import FeatureList


@click.command("metrics")
@options.features
def metrics_command(*, features: FeatureList) -> int:
    """Print the list of all metrics, in Markdown, which is the page docs/metrics.md."""
    click.echo(metrics_page(features.metrics).rstrip())
    return 0
