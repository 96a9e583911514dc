"""Groups of commands that are imported only when they are asked for.

A start takes as long as its imports, and no command needs what the others need.
"""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from typing import Any

import click


class LazyGroup(click.Group):
    """A group whose commands are named by ``module:attribute``, in the order of their list."""

    def __init__(self, *given: Any, lazy: Mapping[str, str], **more: Any):
        super().__init__(*given, **more)
        self._lazy = lazy

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002 - click's interface
        """Return all names."""
        return list(self._lazy)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002 - click's interface
        """Import a command; None where there is none of that name."""
        if cmd_name not in self._lazy:
            return None
        module, _, attribute = self._lazy[cmd_name].partition(":")
        command: click.Command = getattr(import_module(module), attribute)
        return command
