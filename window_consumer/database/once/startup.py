"""What runs beside workers with ``once``: the check of its tables, the cleaner."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from functools import partial
from typing import Final, TypeVar

import sqlalchemy as sa
from attrs import frozen
from sqlalchemy.exc import DBAPIError, SQLAlchemyError
from sqlalchemy.ext.asyncio import AsyncEngine, create_async_engine
from sqlalchemy.pool import NullPool, QueuePool

from window_consumer.config import WorkerConfig
from window_consumer.database.once.once import Once
from window_consumer.database.once.statements import EffectOwner, statements_of
from window_consumer.database.once.tables import MAX_DELETED
from window_consumer.model.log_events import LogEvent
from window_consumer.runtime.log import own_logger

T = TypeVar("T")

THREAD: Final = "wc-once-cleaner"
_LONGEST_PAUSE_S: Final = 60.0
_BETWEEN_S: Final = 0.1
"""Between two statements that delete: others get at the table meanwhile."""
_END_S: Final = 5.0

_log = own_logger()


@frozen
class OnceWorker:
    """A worker and the ``once`` of one of its handlers."""

    once: Once
    config: WorkerConfig
    has_children: bool = False


def check_before_start(workers: Sequence[OnceWorker]) -> None:
    """Check tables and pools; raise UsageError where calls could not succeed.

    A database that is away is no reason not to start: calls fail, and the breaker opens.
    """
    for each in workers:
        try:
            _in_transaction(each.once, partial(_check, each))
        except DBAPIError as error:
            _log.warning(
                "%s: once: the database does not answer: %s",
                each.config.name,
                error.orig,
                extra={"event": LogEvent.ONCE_DATABASE_AWAY},
            )
        _warn_of_pool(each)


def _check(worker: OnceWorker, connection: sa.Connection) -> None:
    statements_of(connection).refuse_read_only(connection)
    fenced = worker.once.values_for(worker.config).fenced
    worker.once.tables.check(connection, fenced=fenced)


def clean_beside(workers: Sequence[OnceWorker], beside: ExitStack) -> None:
    """Start the thread that deletes old ids; it ends with ``beside``."""
    if not workers:
        return
    stop = threading.Event()
    thread = threading.Thread(target=_clean, args=(workers, stop), name=THREAD, daemon=True)
    thread.start()

    def end() -> None:
        stop.set()
        thread.join(_END_S)

    beside.callback(end)


def _clean(workers: Sequence[OnceWorker], stop: threading.Event) -> None:
    keeps = [each.once.values_for(each.config).keep_s for each in workers]
    pause_s = min(_LONGEST_PAUSE_S, min(keeps) / 10)
    while not stop.wait(pause_s):
        for each in workers:
            try:
                while delete_once(each) == MAX_DELETED and not stop.wait(_BETWEEN_S):
                    pass
            except SQLAlchemyError as error:
                _log.warning(
                    "%s: once: old ids could not be deleted: %s",
                    each.config.name,
                    getattr(error, "orig", None) or error,
                    extra={"event": LogEvent.ONCE_NOT_CLEANED},
                )


def delete_once(worker: OnceWorker) -> int | None:
    """Delete old ids by one statement; return how many, None if another member does so."""
    owner = EffectOwner(worker.config.group, worker.config.name)
    keep_s = worker.once.values_for(worker.config).keep_s
    tables = worker.once.tables
    return _in_transaction(
        worker.once, lambda connection: tables.delete_old(connection, owner, keep_s)
    )


def _in_transaction(once: Once, work: Callable[[sa.Connection], T]) -> T:
    engine = once.engine()
    if isinstance(engine, AsyncEngine):
        return asyncio.run(_on_a_loop(engine, work))
    with engine.begin() as connection:
        return work(connection)


async def _on_a_loop(engine: AsyncEngine, work: Callable[[sa.Connection], T]) -> T:
    """Work on a connection of its own: those of the pool belong to the worker's loop."""
    own = create_async_engine(engine.url, poolclass=NullPool)
    try:
        async with own.begin() as connection:
            return await connection.run_sync(work)
    finally:
        await own.dispose()


def _warn_of_pool(worker: OnceWorker) -> None:
    engine = worker.once.engine()
    pool = engine.pool
    if worker.has_children or not isinstance(pool, QueuePool):
        return
    overflow = pool._max_overflow  # noqa: SLF001 - SQLAlchemy does not tell otherwise
    most, slots = pool.size() + overflow, worker.config.slots
    if overflow >= 0 and most < slots:
        _log.warning(
            "%s: once: the engine's pool has %d connections at most, and %d calls run at once:"
            " the others wait for one; raise pool_size, or lower concurrency",
            worker.config.name,
            most,
            slots,
            extra={"event": LogEvent.ONCE_POOL_TOO_SMALL},
        )
