"""Effects in a database: ``Outbox``, whose rows become records, and ``Once``.

Both are imported on first use, since they need SQLAlchemy: ``pip install 'window-consumer[sql]'``.
"""

from __future__ import annotations

from importlib import import_module
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from window_consumer.model.errors import UsageError

if TYPE_CHECKING:
    from window_consumer.database.once.once import Once
    from window_consumer.database.outbox.table import Outbox

__all__ = ["Once", "Outbox"]

_MODULE_OF = {
    "Once": "window_consumer.database.once.once",
    "Outbox": "window_consumer.database.outbox.table",
}


def __getattr__(name: str) -> Any:
    if name not in _MODULE_OF:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    require_sqlalchemy(name)
    return getattr(import_module(_MODULE_OF[name]), name)


def require_sqlalchemy(what: str) -> None:
    """Raise UsageError, which names ``what``, without SQLAlchemy."""
    if find_spec("sqlalchemy") is None:
        raise UsageError(f"{what} needs SQLAlchemy: pip install 'window-consumer[sql]'")
