"""The connection for a table, from a session, a scoped session or a connection."""

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
    """Return the session of the current scope; anything else unchanged."""
    return given.registry() if isinstance(given, SCOPED) else given


def connection_of(given: Session | sa.Connection, table: sa.Table) -> sa.Connection:
    """Return the connection for a table within the transaction.

    Raises UsageError if the session's ``binds`` have no engine for it.
    """
    if not isinstance(given, Session):
        return given
    try:
        return given.connection(bind_arguments={"clause": table})
    except UnboundExecutionError as error:
        raise UsageError(
            f"the session's binds have no engine for the table {table.fullname}: add it, as in"
            " Session(binds={..., outbox.table: engine}); use the same engine as for the changes"
            " that its rows belong to"
        ) from error
