"""``window-consumer schema`` and ``metrics``: what can be written, and what can be read."""

from __future__ import annotations

import json

import click

from window_consumer.config import config_page, json_schema
from window_consumer.telemetry.reference import metrics_page


@click.command("schema")
@click.option("--markdown", is_flag=True, help="Print the reference page docs/config.md instead.")
def schema_command(*, markdown: bool) -> int:
    """Print a JSON Schema of the configuration file, for editors."""
    click.echo(config_page().rstrip() if markdown else json.dumps(json_schema(), indent=2))
    return 0


@click.command("metrics")
def metrics_command() -> int:
    """Print the list of all metrics, in Markdown, which is the page docs/metrics.md."""
    click.echo(metrics_page().rstrip())
    return 0
