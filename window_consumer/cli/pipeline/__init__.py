"""``window-consumer pipeline``: the jobs on Spark that turn topics of events into tables."""

from __future__ import annotations

import click

from window_consumer.cli.lazy import LazyGroup

_COMMANDS = {
    "jars": "window_consumer.cli.pipeline.jars_command:jars_command",
    "run": "window_consumer.cli.pipeline.run_command:run_command",
    "maintain": "window_consumer.cli.pipeline.maintain_command:maintain_command",
}


@click.group("pipeline", cls=LazyGroup, lazy=_COMMANDS)
def pipeline_group() -> None:
    """Turn the topics of events into tables, with Spark."""
