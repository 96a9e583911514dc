"""The supported databases by name."""

from __future__ import annotations

from typing import Final

from window_consumer.database.dialects.dialect import SqlDialect
from window_consumer.database.dialects.postgres import PostgresDialect
from window_consumer.database.dialects.sqlite import SqliteDialect
from window_consumer.model.errors import UsageError

_DIALECTS: Final[dict[str, SqlDialect]] = {
    each.name: each for each in (PostgresDialect(), SqliteDialect())
}


def dialect_of(name: str) -> SqlDialect:
    """Return a supported database by SQLAlchemy's name for it; raises UsageError."""
    if name not in _DIALECTS:
        raise UsageError(f"{name} is not supported; supported are {' and '.join(_DIALECTS)}")
    return _DIALECTS[name]
