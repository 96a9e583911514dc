"""``window-consumer delay``: runs the delay service."""

from __future__ import annotations

import click

from window_consumer.cli.options import LazyGroup

_COMMANDS = {"run": "window_consumer.delay.commands.run:run_command"}


@click.group("delay", cls=LazyGroup, lazy=_COMMANDS)
def delay_group() -> None:
    """The delay service, which delivers records to their topics at a time."""
