"""``window-consumer dlq``: inspect dead letters and act on them."""

from __future__ import annotations

import click

from window_consumer.cli.options import LazyGroup

_COMMANDS = {
    "list": "window_consumer.dlq.commands.list:list_command",
    "show": "window_consumer.dlq.commands.show:show_command",
    "debug": "window_consumer.dlq.commands.debug:debug_command",
    "report": "window_consumer.dlq.commands.report:report_command",
    "export": "window_consumer.dlq.commands.export:export_command",
    "redrive": "window_consumer.dlq.commands.redrive:redrive_command",
    "purge": "window_consumer.dlq.commands.purge:purge_command",
}


@click.group("dlq", cls=LazyGroup, lazy=_COMMANDS)
def dlq_group() -> None:
    """Inspect dead letters, of these workers or of any topic, and put them back.

    To name a dead letter, use the id of its record, as in orders/0/17, or its own position, as in
    shop-charge.orders.dlq/0/3.
    """
