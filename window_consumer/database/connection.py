"""From what a caller gives to the connection of a table: sessions, scoped ones, connections."""

from __future__ import annotations

from typing import Any

import sqlalchemy as sa
from sqlalchemy.exc import UnboundExecutionError
from sqlalchemy.ext.asyncio import async_scoped_session
from sqlalchemy.orm import Session, scoped_session

from window_consumer.model.errors import UsageError

SCOPED = (scoped_session, async_scoped_session)
"""Registries, such as ``db.session`` of Flask-SQLAlchemy."""


def unscoped(given: Any) -> Any:
    """Return the session of the present scope; anything else as it is."""
    return given.registry() if isinstance(given, SCOPED) else given


def connection_of(given: Session | sa.Connection, table: sa.Table) -> sa.Connection:
    """Return the connection of a transaction for a table.

    Raises UsageError where the session's ``binds`` have no engine for it.
    """
    if not isinstance(given, Session):
        return given
    try:
        return given.connection(bind_arguments={"clause": table})
    except UnboundExecutionError as error:
        raise UsageError(
            f"the session has binds, and no engine for the table {table.fullname}: add it, as in"
            " Session(binds={..., outbox.table: engine}); use the engine of the changes that"
            " belong to its rows"
        ) from error
