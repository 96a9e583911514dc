"""Starts the services of workers with ``once``: checks of its tables, deletion of old ids."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from functools import partial
from typing import Final, TypeVar

import sqlalchemy as sa
from attrs import frozen
from sqlalchemy.exc import SQLAlchemyError
from sqlalchemy.ext.asyncio import AsyncEngine, create_async_engine
from sqlalchemy.pool import NullPool, QueuePool

from window_consumer.config import Config, WorkerConfig
from window_consumer.database.connection_errors import DatabaseUser, reason_of, refusal_of
from window_consumer.database.dialects import dialect_of
from window_consumer.database.dialects.dialect import EffectOwner
from window_consumer.database.once.abandoned import AbandonedCalls, Watched, watch_beside
from window_consumer.database.once.loop_engine import run_in_own_loop
from window_consumer.database.once.once import Once
from window_consumer.database.once.tables import MAX_DELETED
from window_consumer.database.outbox.config import OutboxConfig
from window_consumer.database.outbox.table import Outbox
from window_consumer.model.errors import RunError, UsageError
from window_consumer.model.log_events import LogEvent
from window_consumer.plan.app_plan import PlannedWorker
from window_consumer.runtime.log import own_logger

T = TypeVar("T")

THREAD: Final = "wc-once-cleaner"
_LONGEST_PAUSE_S: Final = 60.0
_BETWEEN_S: Final = 0.1
"""The pause between two DELETE statements, in favor of other users of the table."""
_END_S: Final = 5.0

_log = own_logger()


@frozen
class OnceWorker:
    """A worker and the ``once`` of one of its handlers."""

    once: Once
    config: WorkerConfig
    has_children: bool = False


def once_workers(config: Config, workers: Sequence[PlannedWorker]) -> list[OnceWorker]:
    """Return the workers with ``once``; raise UsageError for shards that differ."""
    found = [
        OnceWorker(route.handler.once, worker.config, worker.pool.has_children)
        for worker in workers
        for route in worker.routes
        if isinstance(route.handler.once, Once)
    ]
    for each in found:
        _check_shards(config, each.config.name, each.once.outbox)
    return found


def _check_shards(config: Config, worker: str, outbox: Outbox | None) -> None:
    relayed = config.section(OutboxConfig)
    if (
        outbox is not None
        and relayed.database is not None
        and outbox.table.fullname == relayed.table
        and outbox.shards != relayed.shards
    ):
        raise UsageError(
            f"worker {worker}: once= has an Outbox(shards={outbox.shards}), but outbox.shards is"
            f" {relayed.shards}: use the same number in both places"
        )


def once_beside(workers: Sequence[OnceWorker], beside: ExitStack) -> dict[str, str]:
    """Check the tables of workers with ``once`` and start their threads; these end with ``beside``.

    Returns why databases are away, by worker. Raises UsageError for missing tables and for wrong
    columns.
    """
    away = check_before_start(workers)
    close_loops_beside(workers, beside)
    clean_beside(workers, beside)
    watch_calls_beside(workers, beside)
    return away


def check_before_start(workers: Sequence[OnceWorker]) -> dict[str, str]:
    """Check tables and pools; raise UsageError if calls could not succeed.

    Workers start even if the database is away: calls wait. Returns why it is, by worker.
    """
    away: dict[str, str] = {}
    for each in workers:
        try:
            in_transaction(each.once, partial(check_once, each))
        except Exception as error:
            refusal = refusal_of(error, each.once.engine().url, user_of(each))
            if not isinstance(refusal, RunError):
                raise refusal or error from error
            name = each.config.name
            away[name] = reason_of(error)
            _log.warning(
                "%s: once: the database is not available, so no call starts and no attempt is"
                " spent: %s",
                name,
                away[name],
                extra={"event": LogEvent.ONCE_DATABASE_AWAY, "worker": name},
            )
        warning = pool_warning(each)
        if warning is not None:
            _log.warning("%s", warning, extra={"event": LogEvent.ONCE_POOL_TOO_SMALL})
    return away


def user_of(worker: OnceWorker) -> DatabaseUser:
    """Return how errors name a worker's ``once``."""
    return DatabaseUser(f"once of {worker.config.name}", "the engine of Once()")


def check_once(worker: OnceWorker, connection: sa.Connection) -> None:
    """Raise UsageError for a read-only database, and for missing or wrong tables."""
    dialect_of(connection.dialect.name).refuse_read_only(connection)
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


def watch_calls_beside(workers: Sequence[OnceWorker], beside: ExitStack) -> None:
    """Start the thread that watches calls; it ends with ``beside``.

    It ends the transactions of abandoned fenced calls, the only ones known to it, and logs which
    call keeps other writers of SQLite waiting. Calls in child processes are not watched; a hanging
    child is killed.
    """
    fenced = [each.once for each in workers if each.once.values_for(each.config).fenced]
    alone = [each.once for each in workers if each.once.writers and not each.has_children]
    watched: list[Watched] = [
        AbandonedCalls(once.engine, once.open_transactions) for once in dict.fromkeys(fenced)
    ]
    watched += [once.writers for once in dict.fromkeys(alone) if once.writers]
    watch_beside(watched, beside)


def close_loops_beside(workers: Sequence[OnceWorker], beside: ExitStack) -> None:
    """Close the connections of additional event loops at the end of ``beside``."""
    for once in dict.fromkeys(each.once for each in workers):
        beside.callback(once.close_loops)


def _clean(workers: Sequence[OnceWorker], stop: threading.Event) -> None:
    keeps = [each.once.values_for(each.config).keep_s for each in workers]
    pause_s = min(_LONGEST_PAUSE_S, min(keeps) / 10)
    while not stop.wait(pause_s):
        for each in workers:
            try:
                while delete_once(each) == MAX_DELETED and not stop.wait(_BETWEEN_S):
                    pass
            except (SQLAlchemyError, OSError) as error:
                _log.warning(
                    "%s: once: cannot delete old ids: %s",
                    each.config.name,
                    reason_of(error),
                    extra={"event": LogEvent.ONCE_NOT_CLEANED},
                )


def delete_once(worker: OnceWorker) -> int | None:
    """Delete old ids with one statement; return how many, None if another member is doing so."""
    owner = EffectOwner(worker.config.group, worker.config.name)
    keep_s = worker.once.values_for(worker.config).keep_s
    tables = worker.once.tables
    return in_transaction(
        worker.once, lambda connection: tables.delete_old(connection, owner, keep_s)
    )


def in_transaction(once: Once, work: Callable[[sa.Connection], T]) -> T:
    """Run ``work`` in a transaction on the database of ``once``. Any thread may call."""
    engine = once.engine()
    if not isinstance(engine, AsyncEngine):
        with engine.begin() as connection:
            return work(connection)
    blocking = dialect_of(engine.dialect.name).blocking(engine.url)
    if blocking is None:
        return run_in_own_loop(lambda: _on_a_loop(engine, work))
    # If aiosqlite cannot connect, it reports that to a loop that has ended.
    with sa.create_engine(blocking, poolclass=NullPool).begin() as connection:
        return work(connection)


async def _on_a_loop(engine: AsyncEngine, work: Callable[[sa.Connection], T]) -> T:
    """Run ``work`` on a new connection: pooled ones belong to the worker's loop."""
    own = create_async_engine(engine.url, poolclass=NullPool)
    try:
        async with own.begin() as connection:
            return await connection.run_sync(work)
    finally:
        await own.dispose()


def pool_warning(worker: OnceWorker) -> str | None:
    """Return advice if calls would wait for connections; None if there are enough."""
    pool = worker.once.engine().pool
    if worker.has_children or not isinstance(pool, QueuePool):
        return None
    overflow = pool._max_overflow  # noqa: SLF001 - SQLAlchemy has no public attribute
    most, slots = pool.size() + overflow, worker.config.slots
    if overflow < 0 or most >= slots:
        return None
    return (
        f"{worker.config.name}: once: the engine's pool has at most {most} connections for {slots}"
        " concurrent calls, so calls wait for connections; write"
        f" create_engine(..., pool_size={slots - overflow}), or lower concurrency"
    )


def writer_warning(worker: OnceWorker) -> str | None:
    """Return a warning about a database with one writer at a time; None for others."""
    if worker.once.writers is None:
        return None
    name, slots = worker.config.name, worker.config.slots
    turns = f", so its {slots} slots take turns" if slots > 1 else ""
    return (
        f"{name}: once: SQLite has one writer at a time, and a call holds the write lock from"
        f" start to end{turns}; writes of other programs wait, and fail after their timeout (5 s"
        " in Python) with 'database is locked': keep handlers short, use connect_args={'timeout':"
        " 60} in the other programs' create_engine, or use PostgreSQL"
    )
