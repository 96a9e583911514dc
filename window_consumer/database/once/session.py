"""The session of a call: the framework begins and ends its transaction."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from typing import Any, NoReturn, Protocol

import sqlalchemy as sa
from sqlalchemy.orm import Session, SessionTransaction

from window_consumer.database.connection import connection_of
from window_consumer.database.dialects import dialect_of
from window_consumer.database.outbox.table import Outbox
from window_consumer.model.errors import UsageError, WindowConsumerError

__handler_layer__ = True  # its frames are no part of a failure, see runtime/stack.py


class SessionOwnedError(WindowConsumerError):
    """A handler ended the transaction of ``record.session``, which the framework manages."""

    code = "WC144"


class EffectSession(Protocol):
    """A session as the framework uses it. Owner: the slot that calls the handler."""

    @property
    def handed(self) -> Any:
        """Return ``record.session``, or the synchronous session behind it."""

    @property
    def info(self) -> dict[Any, Any]:
        """Return the data stored with the session, for ``Outbox``."""

    @property
    def lost(self) -> bool:
        """Return whether the connection broke in this transaction."""

    def connection(self) -> sa.Connection:
        """Return the connection to the tables of ``once``."""

    def begin_effects(self) -> None:
        """Connect, and begin the transaction."""

    def store(self, outbox: Outbox, rows: Sequence[Mapping[str, Any]]) -> None:
        """Insert rows into the outbox; one replaces a row with the same id."""

    def commit_effects(self) -> None:
        """Commit; raises if the handler ended the transaction, or it has failed."""

    def discard(self) -> None:
        """Close the connection: the next call needs a new one."""

    def end(self) -> None:
        """Roll back uncommitted changes, and release the connection."""


class OnceSession(Session):
    """A session that does not let the handler end its transaction."""

    _own: sa.Connection | None = None

    def commit(self) -> NoReturn:
        """Raise SessionOwnedError."""
        _refuse("commit")

    def rollback(self) -> NoReturn:
        """Raise SessionOwnedError."""
        _refuse("rollback")

    def close(self) -> NoReturn:
        """Raise SessionOwnedError."""
        _refuse("close")

    @property
    def handed(self) -> Session:
        """See EffectSession."""
        return self

    def store(self, outbox: Outbox, rows: Sequence[Mapping[str, Any]]) -> None:
        """See EffectSession."""
        outbox.insert(self, rows, replace=True)

    def commit_effects(self) -> None:
        """See EffectSession."""
        _flush(self, self._began, self.connection())
        super().commit()

    def begin_effects(self) -> None:
        """See EffectSession."""
        self._own = None
        self._began = self.begin()
        self._own = self.connection()

    @property
    def lost(self) -> bool:
        """See EffectSession."""
        return self._own is not None and self._own.invalidated

    def discard(self) -> None:
        """See EffectSession."""
        _discard(self._own)

    def end(self) -> None:
        """See EffectSession."""
        super().close()


class GivenSession:
    """A session that the application created, of any class and with any binds.

    Its commit raises in the handler. If the handler rolls back or closes, nothing is committed.
    """

    def __init__(self, session: Session, table: sa.Table, engine: sa.Engine, leave: ExitStack):
        self.handed = session
        self._table = table
        self._engine = engine
        self._leave = leave
        self._began: SessionTransaction | None = None
        self._connection: sa.Connection | None = None
        self._own: sa.Engine | None = None
        self._is_ours = False
        self._listeners = (
            ("before_commit", self._refuse_commit),
            ("after_begin", self._refuse_second),
        )
        for event in self._listeners:
            sa.event.listen(session, *event)

    @property
    def info(self) -> dict[Any, Any]:
        """See EffectSession."""
        info: dict[Any, Any] = self.handed.info
        return info

    def connection(self) -> sa.Connection:
        """See EffectSession."""
        return connection_of(self.handed, self._table)

    def store(self, outbox: Outbox, rows: Sequence[Mapping[str, Any]]) -> None:
        """See EffectSession."""
        outbox.insert(self.handed, rows, replace=True)

    def begin_effects(self) -> None:
        """See EffectSession. Raises UsageError for a session on another database."""
        self._connection = None
        self._began = self.handed.begin()
        self._connection = self.connection()
        found = self._connection.engine
        if _place(found.url) != _place(self._engine.url):
            raise UsageError(
                f"once: session= created a session for the database {found.url!r}, but the engine"
                f" of Once() is for {self._engine.url!r}"
            )

    def commit_effects(self) -> None:
        """See EffectSession."""
        _flush(self.handed, self._began, self.connection())
        self._is_ours = True
        self.handed.commit()

    @property
    def lost(self) -> bool:
        """See EffectSession."""
        return self._connection is not None and self._connection.invalidated

    def discard(self) -> None:
        """See EffectSession."""
        _discard(self._connection)

    def end(self) -> None:
        """See EffectSession."""
        try:
            self.handed.close()
        finally:
            for event in self._listeners:
                sa.event.remove(self.handed, *event)
            self._leave.close()

    def _refuse_commit(self, session: Session) -> None:
        if not self._is_ours and not session.in_nested_transaction():
            _refuse("commit")

    def _refuse_second(
        self, _session: Session, _transaction: SessionTransaction, connection: sa.Connection
    ) -> None:
        """Refuse two transactions in one database: only the first would have the ids."""
        engine = connection.engine
        if self._own is None:
            self._own = engine
        elif engine is not self._own and _place(engine.url) == _place(self._own.url):
            raise UsageError(
                f"once: the session's binds have two engines for {engine.url!r}, so its changes"
                " would be in two transactions: use one engine"
            )


def _flush(session: Session, began: SessionTransaction | None, connection: sa.Connection) -> None:
    transaction = session.get_transaction()
    session.flush()
    if transaction is None or transaction is not began or not connection.in_transaction():
        raise SessionOwnedError(
            "the handler ended the transaction of record.session: return to commit it, raise to"
            " roll it back"
        )
    dialect_of(connection.dialect.name).refuse_failed(connection)


def _discard(connection: sa.Connection | None) -> None:
    if connection is not None and not connection.closed and not connection.invalidated:
        connection.invalidate()


def _refuse(what: str) -> NoReturn:
    raise SessionOwnedError(
        f"do not call record.session.{what}(): the framework commits when the handler returns and"
        " rolls back when it raises; use session.begin_nested() for a part that may fail"
    )


def _place(url: sa.URL) -> tuple[object, ...]:
    hosts = url.query.get("host"), url.query.get("port")
    return url.get_backend_name(), url.host, url.port, url.database, hosts
