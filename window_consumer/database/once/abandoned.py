"""Ends the transactions of abandoned calls: a hanging call must not keep its locks for ever.

A thread cannot be stopped, so a second connection terminates the first one's transaction.
Otherwise the next owner of the partition would wait as long as the call hangs.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import ExitStack
from typing import Final, Protocol, TypeVar

import sqlalchemy as sa
from attrs import define
from sqlalchemy.exc import SQLAlchemyError
from sqlalchemy.ext.asyncio import AsyncEngine, create_async_engine

from window_consumer.database.once.fence_locks import Backend, locks_of
from window_consumer.database.once.transactions import Engine
from window_consumer.model.log_events import LogEvent
from window_consumer.model.record import Record
from window_consumer.runtime.log import own_logger

T = TypeVar("T")

THREAD: Final = "wc-once-watch"
GRACE_S: Final = 1.0
"""How long an abandoned call may continue: most end by themselves."""
_CHECK_S: Final = 0.25
_QUIET_S: Final = 10.0
_END_S: Final = 5.0

_log = own_logger()


@define(eq=False)
class OpenTransaction:
    """The transaction of a running call."""

    record: Record
    """The call's first record."""
    backend: Backend
    abandoned_at: float | None = None
    ended: bool = False
    """Whether it needs no further action."""


class OpenTransactions:
    """Transactions that a second connection can end. Any slot may add its own."""

    def __init__(self) -> None:
        self._open: set[OpenTransaction] = set()

    def add(self, record: Record, backend: Backend) -> OpenTransaction:
        """Start watching the transaction of a call."""
        found = OpenTransaction(record, backend)
        self._open.add(found)
        return found

    def remove(self, transaction: OpenTransaction) -> None:
        """Stop watching a transaction that is over."""
        self._open.discard(transaction)

    def overdue(self, now: float, grace_s: float) -> list[OpenTransaction]:
        """Return transactions of calls abandoned ``grace_s`` ago or more. Owner: one thread."""
        found = []
        for each in list(self._open):
            if each.ended or not each.record.cancelled:
                continue
            if each.abandoned_at is None:
                each.abandoned_at = now
            if now - each.abandoned_at >= grace_s:
                found.append(each)
        return found


class Watched(Protocol):
    """The object that the thread checks."""

    def check(self) -> None:
        """Check; called several times a second."""

    def last_check(self) -> None:
        """Check for the last time: the process may continue without this thread."""


@define
class AbandonedCalls:
    """Finds abandoned calls of one ``Once``. Owner: the thread that watches."""

    _engine_of: Callable[[], Engine]
    _transactions: OpenTransactions
    _logged_at: float = float("-inf")

    def check(self) -> None:
        """See Watched."""
        self.end()

    def last_check(self) -> None:
        """See Watched."""
        self.end(grace_s=0.0)

    def end(self, grace_s: float = GRACE_S) -> None:
        """End transactions of calls abandoned ``grace_s`` ago or more; failures are logged."""
        now = time.monotonic()
        overdue = self._transactions.overdue(now, grace_s)
        if not overdue:
            return
        try:
            _on_own_connection(self._engine_of(), lambda connection: _end_all(connection, overdue))
        except (SQLAlchemyError, OSError) as error:
            if now - self._logged_at >= _QUIET_S:
                self._logged_at = now
                _log.warning(
                    "once: cannot end the transactions of %d abandoned calls: %s",
                    len(overdue),
                    getattr(error, "orig", None) or error,
                    extra={"event": LogEvent.ONCE_NOT_ENDED},
                )


def watch_beside(watched: Sequence[Watched], beside: ExitStack) -> None:
    """Start the thread that checks these, if there are any; it ends with ``beside``."""
    if not watched:
        return
    stop = threading.Event()
    thread = threading.Thread(target=_watch, args=(watched, stop), name=THREAD, daemon=True)
    thread.start()

    def end() -> None:
        stop.set()
        thread.join(_END_S)

    beside.callback(end)


def _watch(watched: Sequence[Watched], stop: threading.Event) -> None:
    while not stop.wait(_CHECK_S):
        for each in watched:
            each.check()
    for each in watched:
        each.last_check()


def _end_all(connection: sa.Connection, overdue: Iterable[OpenTransaction]) -> None:
    locks = locks_of(connection)
    for each in overdue:
        is_ended = locks.end(connection, each.backend)
        each.ended = True
        if not is_ended:
            continue
        record = each.record
        _log.warning(
            "once: ended the transaction of the abandoned call for %s[%d]@%d (backend %d)",
            record.topic,
            record.partition,
            record.offset,
            each.backend.pid,
            extra={
                "event": LogEvent.ONCE_TRANSACTION_ENDED,
                "topic": record.topic,
                "partition": record.partition,
                "offset": record.offset,
                "backend": each.backend.pid,
            },
        )


def _on_own_connection(engine: Engine, work: Callable[[sa.Connection], T]) -> T:
    """Run ``work`` on a new connection like the pool's: hanging calls may hold all pooled ones."""
    if isinstance(engine, AsyncEngine):
        return asyncio.run(_on_a_loop(engine, work))
    own = sa.create_engine(engine.url, pool=engine.pool.recreate())
    try:
        with own.begin() as connection:
            return work(connection)
    finally:
        own.dispose()


async def _on_a_loop(engine: AsyncEngine, work: Callable[[sa.Connection], T]) -> T:
    own = create_async_engine(engine.url, pool=engine.sync_engine.pool.recreate())
    try:
        async with own.begin() as connection:
            return await connection.run_sync(work)
    finally:
        await own.dispose()
