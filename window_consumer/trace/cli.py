"""``window-consumer trace``: the history of records, from the table of trace events."""

from __future__ import annotations

import click

from window_consumer.cli.options import LazyGroup

_COMMANDS = {
    "show": "window_consumer.trace.commands.show:show_command",
    "search": "window_consumer.trace.commands.search:search_command",
    "delete": "window_consumer.trace.commands.delete:delete_command",
}


@click.group("trace", cls=LazyGroup, lazy=_COMMANDS)
def trace_group() -> None:
    """Follow single records, and search records by their history."""
