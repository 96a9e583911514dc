"""The live window beside the workers, only where it is configured: its packages are optional."""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING

from window_consumer.app.plan import Plan
from window_consumer.model.errors import UsageError
from window_consumer.telemetry.copies import CopyOfMany

if TYPE_CHECKING:
    from window_consumer.web.board import BoardOfWorkers

_MISSING = (
    "admin.listen needs the extra web, which is not installed: pip install 'window-consumer[web]'"
)


def admin_board(plan: Plan, copy: CopyOfMany | None, beside: ExitStack) -> BoardOfWorkers | None:
    """Serve what the configuration asks for, until ``beside`` is left; None for nothing.

    Raises UsageError where the extra is missing, or the address cannot be had.
    """
    if plan.config.admin.address is None:
        return None
    try:
        from window_consumer.web.board import BoardOfWorkers  # noqa: PLC0415 - an optional extra
        from window_consumer.web.server import serving  # noqa: PLC0415 - as above
    except ImportError as error:
        raise UsageError(_MISSING) from error
    board = BoardOfWorkers("" if copy is None else copy.number, plan.mask)
    beside.enter_context(serving(board, plan.config.admin, Path(plan.file).parent))
    return board
