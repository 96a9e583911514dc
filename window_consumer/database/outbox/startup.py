"""Starts the relay of an outbox on its own thread, and queries its backlog."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import Final

from attrs import evolve, frozen
from sqlalchemy.exc import SQLAlchemyError

from window_consumer.config import Config
from window_consumer.database.connection_errors import reason_of, refusal_of
from window_consumer.database.outbox.config import OutboxConfig
from window_consumer.database.outbox.diagnosis import OutboxBacklog
from window_consumer.database.outbox.listening import THREAD as LISTENS
from window_consumer.database.outbox.listening import CommitListener
from window_consumer.database.outbox.metrics import OutboxFigures
from window_consumer.database.outbox.relay import OutboxRelay, RelayRules
from window_consumer.database.outbox.sender import KafkaOutboxSender
from window_consumer.database.outbox.setup import OUTBOX, OutboxDatabase, producer_properties
from window_consumer.kafka.client_log import ClientLog
from window_consumer.kafka.cluster import Cluster
from window_consumer.kafka.cluster.transactions import find_obstacle
from window_consumer.kafka.oauth import OauthToken, uses_tokens
from window_consumer.kafka.settings import PRODUCER_ONLY, admin_settings
from window_consumer.model.errors import ConfigError, RunError, WindowConsumerError
from window_consumer.model.log_events import LogEvent
from window_consumer.plan.start_timeout import LOGGER

THREAD: Final = "wc-outbox-relay"
_END_S: Final = 6.0
"""How long a stop waits: a transaction of the relay takes at most 5 s."""

_CLUSTER_S: Final = 2.0
"""How long a start checks whether transactions can begin; the relay itself waits for Kafka."""


@frozen
class RelayThread:
    """A relay and its thread."""

    relay: OutboxRelay
    _stop: threading.Event
    _threads: Sequence[threading.Thread]
    """The relay's thread and, if any, the one that listens to commits of other processes."""

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


def backlog_of(config: OutboxConfig) -> OutboxBacklog:
    """Return the backlog of the outbox. Raises UsageError."""
    database = OutboxDatabase.of(config)
    try:
        with database.engine.connect() as connection, connection.begin():
            counts = database.store.counts(connection)
    except SQLAlchemyError as error:
        return OutboxBacklog(error=str(getattr(error, "orig", None) or error))
    finally:
        database.engine.dispose()
    return OutboxBacklog(counts.oldest_s, counts.blocked)


def check_transactions(config: Config, log: ClientLog, oauth_token: OauthToken | None) -> None:
    """Raise ConfigError for a cluster on which the relay can never begin a transaction.

    An inconclusive check is no error: the relay itself reports why it cannot send.
    """
    properties = producer_properties(config)
    plain = {key: value for key, value in properties.items() if key not in PRODUCER_ONLY}
    if oauth_token is None and uses_tokens(plain):
        return
    cluster = Cluster(admin_settings(plain, "outbox-relay"), log, oauth_token)
    try:
        cluster.wait_until_there(_CLUSTER_S, lambda _reason, _waited_s: None)
        obstacle = None if cluster.is_embedded else find_obstacle(cluster)
    except WindowConsumerError:
        return
    if obstacle is not None:
        raise ConfigError(
            "outbox.database: the relay of its rows needs transactions, and the cluster at"
            f" {cluster.bootstrap} can begin none: {obstacle}"
        )


def start_relay(config: Config, log: ClientLog, oauth_token: OauthToken | None) -> RelayThread:
    """Start a relay; raises UsageError for a database that cannot be used or lacks the table.

    Waits for an unavailable database. Raises ConfigError as ``check_transactions``.
    """
    check_transactions(config, log, oauth_token)
    outbox = config.section(OutboxConfig)
    database = OutboxDatabase.of(outbox)
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
    holds_keys = outbox.on_refused == "block"
    properties = producer_properties(config)
    sender = KafkaOutboxSender(properties, log, oauth_token, holds_keys=holds_keys)
    relay = OutboxRelay(database, sender, RelayRules.of(outbox), stop)
    threads = [threading.Thread(target=relay.run, name=THREAD, daemon=True)]
    if outbox.notify:
        engine, channel = database.listening_engine(), database.outbox.channel
        listener = CommitListener(engine, channel, relay.wake_up, stop)
        threads.append(threading.Thread(target=listener.run, name=LISTENS, daemon=True))
    for thread in threads:
        thread.start()
    return RelayThread(relay, stop, threads)
