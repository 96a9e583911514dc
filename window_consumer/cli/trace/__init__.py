"""``window-consumer trace``: what became of records, from the table of trace events."""

from __future__ import annotations

import click

from window_consumer.cli.lazy import LazyGroup

_COMMANDS = {
    "show": "window_consumer.cli.trace.show_command:show_command",
    "search": "window_consumer.cli.trace.search_command:search_command",
    "delete": "window_consumer.cli.trace.delete_command:delete_command",
}


@click.group("trace", cls=LazyGroup, lazy=_COMMANDS)
def trace_group() -> None:
    """What became of a record, and which records had something happen to them."""
