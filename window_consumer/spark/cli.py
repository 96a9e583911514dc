"""``window-consumer pipeline`` and ``backfill``: the commands that start Spark."""

from __future__ import annotations

import click

from window_consumer.cli.options import LazyGroup

_PIPELINE = {
    "jars": "window_consumer.spark.commands.jars:jars_command",
    "run": "window_consumer.spark.commands.run:run_command",
    "maintain": "window_consumer.spark.commands.maintain:maintain_command",
}


@click.group("pipeline", cls=LazyGroup, lazy=_PIPELINE)
def pipeline_group() -> None:
    """Turn topics of events into tables, with Spark."""
