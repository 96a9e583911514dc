"""Wires databases into an application: the outbox relay and what ``once`` needs."""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any, Final

from attrs import evolve, frozen

from window_consumer.config import Config
from window_consumer.database import require_sqlalchemy
from window_consumer.kafka.client_log import ClientLog
from window_consumer.kafka.oauth import OauthToken
from window_consumer.model.errors import RunError, UsageError
from window_consumer.model.log_events import LogEvent
from window_consumer.plan.app_plan import PlannedWorker
from window_consumer.plan.start_timeout import LOGGER
from window_consumer.runtime.figures.measures import OutboxBacklog, OutboxFigures

if TYPE_CHECKING:
    from window_consumer.database.findings import DatabaseFindings as DatabaseFindings  # noqa: PLC0414 - exported
    from window_consumer.database.once.startup import OnceWorker
    from window_consumer.database.outbox.relay import OutboxRelay
    from window_consumer.database.outbox.sender import OutboxSender
    from window_consumer.database.outbox.table import Outbox

THREAD: Final = "wc-outbox-relay"
_END_S: Final = 6.0
"""A transaction of the relay takes 5 s at most."""


@frozen
class RelayThread:
    """A relay and its thread."""

    relay: OutboxRelay
    _stop: threading.Event
    _threads: Sequence[threading.Thread]
    """The relay's, and the one that listens to commits of other processes, if any."""

    def stop(self) -> None:
        """Stop the relay after its transaction; returns within a few seconds."""
        self._stop.set()
        self.relay.wake_up.set()
        for thread in self._threads:
            thread.join(_END_S)

    def is_alive(self) -> bool:
        """Return whether the relay is still running."""
        return self._threads[0].is_alive()

    def figures(self) -> OutboxFigures:
        """Return the relay's counts, and why it has stopped. Any thread may call."""
        found = self.relay.figures()
        if self.is_alive() or self._stop.is_set():
            return found
        return evolve(found, failure=found.failure or "its thread has ended")


def relay_beside(
    config: Config, log: ClientLog, oauth_token: OauthToken | None, beside: ExitStack
) -> RelayThread | None:
    """Start the relay if the configuration has one; it ends with ``beside``.

    Raises UsageError for a database that cannot be used or lacks the table.
    """
    if config.outbox.database is None or not config.outbox.relay:
        return None
    started = start_relay(config, log, oauth_token)
    beside.callback(started.stop)
    return started


def backlog_of(config: Config) -> OutboxBacklog | None:
    """Return the backlog of the outbox; None if none is configured. Raises UsageError."""
    if config.outbox.database is None:
        return None
    require_sqlalchemy("outbox")
    from sqlalchemy.exc import SQLAlchemyError  # noqa: PLC0415 - SQLAlchemy is optional

    from window_consumer.database.outbox.setup import OutboxDatabase  # noqa: PLC0415 - likewise

    database = OutboxDatabase.of(config.outbox)
    try:
        with database.engine.connect() as connection, connection.begin():
            counts = database.store.counts(connection)
    except SQLAlchemyError as error:
        return OutboxBacklog(error=str(getattr(error, "orig", None) or error))
    finally:
        database.engine.dispose()
    return OutboxBacklog(counts.oldest_s, counts.blocked)


def sender_of(
    properties: Mapping[str, Any],
    log: ClientLog,
    oauth_token: OauthToken | None,
    *,
    holds_keys: bool = True,
) -> OutboxSender:
    """Return a sender of rows to Kafka with these producer properties."""
    from window_consumer.database.outbox.sender import KafkaOutboxSender  # noqa: PLC0415 - SQLAlchemy is optional

    return KafkaOutboxSender(properties, log, oauth_token, holds_keys=holds_keys)


def start_relay(config: Config, log: ClientLog, oauth_token: OauthToken | None) -> RelayThread:
    """Start a relay; raises UsageError for a database that cannot be used or lacks the table.

    Waits for an unavailable database.
    """
    require_sqlalchemy("outbox")
    from sqlalchemy.exc import SQLAlchemyError  # noqa: PLC0415 - SQLAlchemy is optional

    from window_consumer.database.connection_errors import reason_of, refusal_of  # noqa: PLC0415 - likewise
    from window_consumer.database.outbox.listening import THREAD as LISTENS  # noqa: PLC0415 - likewise
    from window_consumer.database.outbox.listening import CommitListener  # noqa: PLC0415 - likewise
    from window_consumer.database.outbox.relay import OutboxRelay  # noqa: PLC0415 - likewise
    from window_consumer.database.outbox.setup import OUTBOX, OutboxDatabase, producer_properties  # noqa: PLC0415 - likewise

    database = OutboxDatabase.of(config.outbox)
    try:
        database.check()
        database.check_shards()
        database.report_missing_indexes()
    except SQLAlchemyError as error:
        refusal = refusal_of(error, database.engine.url, OUTBOX)
        if not isinstance(refusal, RunError):
            raise refusal or error from error
        LOGGER.warning(
            "outbox: the database is not available yet: %s",
            reason_of(error),
            extra={"event": LogEvent.OUTBOX_DATABASE_FAILED},
        )
    stop = threading.Event()
    holds_keys = config.outbox.on_refused == "block"
    sender = sender_of(producer_properties(config), log, oauth_token, holds_keys=holds_keys)
    relay = OutboxRelay(database, sender, database.rules(), stop)
    threads = [threading.Thread(target=relay.run, name=THREAD, daemon=True)]
    if config.outbox.notify:
        engine, channel = database.listening_engine(), database.outbox.channel
        listener = CommitListener(engine, channel, relay.wake_up, stop)
        threads.append(threading.Thread(target=listener.run, name=LISTENS, daemon=True))
    for thread in threads:
        thread.start()
    return RelayThread(relay, stop, threads)


def database_findings(
    config: Config, workers: Sequence[PlannedWorker], timeout_s: float | None
) -> tuple[DatabaseFindings, ...]:
    """Check the databases of ``once`` and the outbox, see ``databases_of``."""
    if not _has_once(workers) and config.outbox.database is None:
        return ()
    require_sqlalchemy("outbox")
    from window_consumer.database.findings import databases_of  # noqa: PLC0415 - SQLAlchemy is optional

    return databases_of(config, once_workers(config, workers), timeout_s)


def database_warnings(config: Config, workers: Sequence[PlannedWorker]) -> tuple[str, ...]:
    """Return the warnings of ``check`` about databases of ``once``, without connecting."""
    if not _has_once(workers):
        return ()
    from window_consumer.database.once.startup import pool_warning, writer_warning  # noqa: PLC0415 - SQLAlchemy is optional

    found = [
        warning_of(each)
        for each in once_workers(config, workers)
        for warning_of in (pool_warning, writer_warning)
    ]
    return tuple(dict.fromkeys(warning for warning in found if warning is not None))


def once_beside(config: Config, workers: Sequence[PlannedWorker], beside: ExitStack) -> None:
    """Check what workers with ``once`` need and start their cleaner; it ends with ``beside``.

    Raises UsageError for missing tables, for wrong columns, and for an outbox whose number of
    shards differs from the configuration.
    """
    if not _has_once(workers):
        return
    from window_consumer.database.once.startup import (  # noqa: PLC0415 - SQLAlchemy is optional
        check_before_start,
        clean_beside,
        close_loops_beside,
        watch_calls_beside,
    )

    found = once_workers(config, workers)
    check_before_start(found)
    close_loops_beside(found, beside)
    clean_beside(found, beside)
    watch_calls_beside(found, beside)


def _has_once(workers: Sequence[PlannedWorker]) -> bool:
    return any(route.handler.once for worker in workers for route in worker.routes)


def once_workers(config: Config, workers: Sequence[PlannedWorker]) -> list[OnceWorker]:
    """Return the workers with ``once``; raise UsageError for shards that differ."""
    if not _has_once(workers):
        return []
    from window_consumer.database.once.once import Once  # noqa: PLC0415 - SQLAlchemy is optional
    from window_consumer.database.once.startup import OnceWorker  # noqa: PLC0415 - likewise

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
    if (
        outbox is not None
        and config.outbox.database is not None
        and outbox.table.fullname == config.outbox.table
        and outbox.shards != config.outbox.shards
    ):
        raise UsageError(
            f"worker {worker}: once= has an Outbox(shards={outbox.shards}), but outbox.shards is"
            f" {config.outbox.shards}: use the same number in both places"
        )
