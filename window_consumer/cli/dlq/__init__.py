"""``window-consumer dlq``: looking at dead letters, and what can be done with them."""

from __future__ import annotations

import click

from window_consumer.cli.lazy import LazyGroup

_COMMANDS = {
    "list": "window_consumer.cli.dlq.list_command:list_command",
    "show": "window_consumer.cli.dlq.show_command:show_command",
    "debug": "window_consumer.cli.dlq.debug_command:debug_command",
    "report": "window_consumer.cli.dlq.report_command:report_command",
    "export": "window_consumer.cli.dlq.export_command:export_command",
    "redrive": "window_consumer.cli.dlq.redrive:redrive_command",
    "purge": "window_consumer.cli.dlq.purge_command:purge_command",
}


@click.group("dlq", cls=LazyGroup, lazy=_COMMANDS)
def dlq_group() -> None:
    """Look at dead letters, of these workers or of any topic, and put them back.

    A dead letter is named by the id of its record, as in orders/0/17, or by where it stands
    itself, as in shop-charge.orders.dlq/0/3.
    """
