"""``window-consumer dlq``: working with dead letters."""

from __future__ import annotations

import click

from window_consumer.cli.dlq.redrive import redrive_command


@click.group("dlq")
def dlq_group() -> None:
    """Look at dead letters, and put them back."""


dlq_group.add_command(redrive_command)
