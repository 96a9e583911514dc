"""The session of a call: the framework begins and ends its transaction."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack
from typing import Any, NoReturn, Protocol

import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncEngine, AsyncSession
from sqlalchemy.orm import Session, SessionTransaction

from window_consumer.database.connection import SCOPED, connection_of, unscoped
from window_consumer.database.dialects import dialect_of
from window_consumer.database.once.writer import WriterTurns
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


class SyncTransaction:
    """The transaction of one call of a function."""

    def __init__(self, effects: EffectSession):
        self.session = effects.handed
        self.info = effects.info
        self._effects = effects

    @property
    def lost(self) -> bool:
        """See EffectSession."""
        return self._effects.lost

    def run(self, function: Callable[..., Any], *given: Any) -> Any:
        """Call a function with the session as its first argument."""
        return function(self._effects, *given)


class AsyncTransaction:
    """The transaction of one call of a coroutine."""

    def __init__(self, session: AsyncSession, effects: EffectSession):
        self.session = session
        self.info = effects.info
        self._effects = effects

    @property
    def lost(self) -> bool:
        """See EffectSession."""
        return self._effects.lost

    def run(self, function: Callable[..., Any], *given: Any) -> Any:
        """Return an awaitable that calls a function with the synchronous session first."""
        return self.session.run_sync(lambda _: function(self._effects, *given))


Engine = sa.Engine | AsyncEngine
EffectTransaction = SyncTransaction | AsyncTransaction
AnySession = Session | AsyncSession
SessionFactory = Callable[[], Any]
"""Returns a session, a scoped session, or a context manager around one of them."""


def transaction_on(engine: Engine) -> EffectTransaction:
    """Return a transaction for one call; nothing has begun."""
    if isinstance(engine, AsyncEngine):
        session = AsyncSession(engine, sync_session_class=OnceSession, expire_on_commit=False)
        effects: Any = session.sync_session
        return AsyncTransaction(session, effects)
    return SyncTransaction(OnceSession(engine, expire_on_commit=False))


class EffectTransactions(Protocol):
    """Opens the transactions of calls. Any slot may call."""

    @property
    def writers(self) -> WriterTurns | None:
        """Return the writing and waiting calls if there is one writer at a time."""

    def open(self) -> EffectTransaction:
        """Return a transaction for one call, with the session for its handler."""

    def apart(self) -> EffectTransaction | None:
        """Return a transaction for statements before the call; None if the call's own may do so."""


class SessionTransactions:
    """Opens transactions of SQLAlchemy's sessions. Any slot may call."""

    def __init__(
        self,
        engine_of: Callable[[], Engine],
        given_engine_of: Callable[[], Engine],
        table: sa.Table,
        factory: SessionFactory | None,
        writers: WriterTurns | None,
    ):
        """``engine_of`` is for the running event loop, ``given_engine_of`` is what Once() got."""
        self._writers = writers
        self._engine_of = engine_of
        self._given_engine_of = given_engine_of
        self._table = table
        self._factory = factory

    @property
    def writers(self) -> WriterTurns | None:
        """See EffectTransactions."""
        return self._writers

    def open(self) -> EffectTransaction:
        """See EffectTransactions."""
        engine = self._engine_of()
        return transaction_on(engine) if self._factory is None else self._given(engine)

    def apart(self) -> EffectTransaction | None:
        """See EffectTransactions."""
        return None if self._factory is None else transaction_on(self._engine_of())

    def _given(self, engine: Engine) -> EffectTransaction:
        assert self._factory is not None
        is_async = isinstance(engine, AsyncEngine)
        with ExitStack() as leave:
            session = _enter(self._factory, leave)
            if isinstance(session, AsyncSession) is not is_async:
                kind = "an AsyncSession" if is_async else "a Session"
                raise UsageError(
                    f"once: session= must create {kind}, because the engine is"
                    f" {type(engine).__name__}; it created {type(session).__name__}"
                )
            sync = session.sync_session if isinstance(session, AsyncSession) else session
            own, given = _sync(engine), _sync(self._given_engine_of())
            if sync.bind is None or sync.bind is given:
                sync.bind = own
            effects = GivenSession(sync, self._table, own, leave.pop_all())
        if isinstance(session, AsyncSession):
            return AsyncTransaction(session, effects)
        return SyncTransaction(effects)


def _enter(factory: SessionFactory, leave: ExitStack) -> AnySession:
    """Return a new session; its clean-up goes to ``leave``."""
    made = factory()
    if not isinstance(made, (Session, AsyncSession, *SCOPED)):
        if not isinstance(made, AbstractContextManager):
            raise UsageError(f"once: session= created {type(made).__name__}, not a session")
        made = leave.enter_context(made)
    for each in (factory, made):
        if isinstance(each, SCOPED):
            leave.callback(each.registry.clear)
    session: AnySession = unscoped(made)
    return session


def _sync(engine: Engine) -> sa.Engine:
    return engine.sync_engine if isinstance(engine, AsyncEngine) else engine
