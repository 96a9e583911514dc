"""The session of a call: the framework begins and ends its transaction."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NoReturn

import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncEngine, AsyncSession
from sqlalchemy.orm import Session

from window_consumer.database.once.statements import statements_of
from window_consumer.model.errors import WindowConsumerError


class SessionOwnedError(WindowConsumerError):
    """A handler ended the transaction of ``record.session``, which the framework does."""


class OnceSession(Session):
    """A session whose transaction a handler cannot end."""

    def commit(self) -> NoReturn:
        """Raise SessionOwnedError."""
        _refuse("commit")

    def rollback(self) -> NoReturn:
        """Raise SessionOwnedError."""
        _refuse("rollback")

    def close(self) -> NoReturn:
        """Raise SessionOwnedError."""
        _refuse("close")

    def commit_effects(self) -> None:
        """Commit; raises where the transaction is not what it was, or has failed."""
        transaction, connection = self.get_transaction(), self.connection()
        self.flush()
        if transaction is None or transaction is not self._began or not connection.in_transaction():
            raise SessionOwnedError(
                "the handler ended the transaction of record.session: return to commit it, raise"
                " to roll it back"
            )
        statements_of(connection).refuse_failed(connection)
        super().commit()

    def begin_effects(self) -> None:
        """Begin the transaction."""
        self._began = self.begin()

    def end(self) -> None:
        """Roll back what is not committed, and give the connection back."""
        super().close()


def _refuse(what: str) -> NoReturn:
    raise SessionOwnedError(
        f"record.session.{what}() is the framework's: it commits when the handler returns and rolls"
        " back when it raises; a part of it may fail within session.begin_nested()"
    )


class SyncTransaction:
    """The transaction of one call of a function."""

    def __init__(self, engine: sa.Engine):
        self.session = OnceSession(engine, expire_on_commit=False)

    def run(self, function: Callable[..., Any], *given: Any) -> Any:
        """Call a function with the session first."""
        return function(self.session, *given)


class AsyncTransaction:
    """The transaction of one call of a coroutine."""

    def __init__(self, engine: AsyncEngine):
        self.session = AsyncSession(engine, sync_session_class=OnceSession, expire_on_commit=False)

    def run(self, function: Callable[..., Any], *given: Any) -> Any:
        """Return an awaitable that calls a function with the synchronous session first."""
        return self.session.run_sync(function, *given)


Engine = sa.Engine | AsyncEngine
EffectTransaction = SyncTransaction | AsyncTransaction


def transaction_on(engine: Engine) -> EffectTransaction:
    """Return a transaction for one call; nothing has begun."""
    return AsyncTransaction(engine) if isinstance(engine, AsyncEngine) else SyncTransaction(engine)
