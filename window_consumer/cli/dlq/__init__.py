"""``window-consumer dlq``: looking at dead letters, and what can be done with them."""

from __future__ import annotations

import click

from window_consumer.cli.dlq.debug_command import debug_command
from window_consumer.cli.dlq.export_command import export_command
from window_consumer.cli.dlq.list_command import list_command
from window_consumer.cli.dlq.purge_command import purge_command
from window_consumer.cli.dlq.redrive import redrive_command
from window_consumer.cli.dlq.show_command import show_command


@click.group("dlq")
def dlq_group() -> None:
    """Look at dead letters, of these workers or of any topic, and put them back.

    A dead letter is named by the id of its record, as in orders/0/17, or by where it stands
    itself, as in shop-charge.orders.dlq/0/3.
    """


dlq_group.add_command(list_command)
dlq_group.add_command(show_command)
dlq_group.add_command(debug_command)
dlq_group.add_command(export_command)
dlq_group.add_command(redrive_command)
dlq_group.add_command(purge_command)
