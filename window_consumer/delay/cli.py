"""``window-consumer delay``: runs the delay service, sends, cancels, and shows waiting records."""

from __future__ import annotations

import click

from window_consumer.cli.options import LazyGroup

_COMMANDS = {
    "cancel": "window_consumer.delay.commands.cancel:cancel_command",
    "run": "window_consumer.delay.commands.run:run_command",
    "send": "window_consumer.delay.commands.send:send_command",
    "status": "window_consumer.delay.commands.status:status_command",
}


@click.group("delay", cls=LazyGroup, lazy=_COMMANDS)
def delay_group() -> None:
    """The delay service, which delivers records to their topics at a time."""
