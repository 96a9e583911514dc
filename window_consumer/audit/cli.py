"""``window-consumer audit``: checks whether everything that was sent was also handled."""

from __future__ import annotations

import click

from window_consumer.cli.options import LazyGroup

_COMMANDS = {"report": "window_consumer.audit.commands.report:report_command"}


@click.group("audit", cls=LazyGroup, lazy=_COMMANDS)
def audit_group() -> None:
    """Check whether everything that was sent was also handled."""
