"""``window-consumer pipeline``: the jobs on Spark that turn topics of events into tables."""

from __future__ import annotations

import click

from window_consumer.cli.options import LazyGroup

_COMMANDS = {
    "jars": "window_consumer.spark.commands.jars:jars_command",
    "run": "window_consumer.spark.commands.run:run_command",
    "maintain": "window_consumer.spark.commands.maintain:maintain_command",
}


@click.group("pipeline", cls=LazyGroup, lazy=_COMMANDS)
def pipeline_group() -> None:
    """Turn the topics of events into tables, with Spark."""
