"""Opens the transactions of calls, each with the session that its handler gets."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, ExitStack
from typing import Any, Protocol

import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncEngine, AsyncSession
from sqlalchemy.orm import Session

from window_consumer.database.connection import SCOPED, unscoped
from window_consumer.database.once.session import EffectSession, GivenSession, OnceSession
from window_consumer.database.once.writer import WriterTurns
from window_consumer.model.errors import UsageError

__handler_layer__ = True  # its frames are no part of a failure, see runtime/stack.py


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
