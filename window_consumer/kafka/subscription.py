"""The topics of a Source and the client that reads them; subclasses define the assignment."""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any

from confluent_kafka import KafkaError

from window_consumer.kafka import settings
from window_consumer.kafka.client_log import ClientLog
from window_consumer.kafka.cluster import Cluster
from window_consumer.kafka.connection import Connection
from window_consumer.kafka.oauth import token_setting
from window_consumer.kafka.watchdogs.client import ClientWatchdog, MakeClientWatchdog
from window_consumer.model.errors import RunError, WrongProcessError
from window_consumer.model.protocols import SourceListener


class Subscription(ABC):
    """The topics that are read, across all clients that read them. Owner: poll thread."""

    def __init__(
        self,
        user_settings: Mapping[str, Any],
        needs: settings.ConsumerNeeds,
        cluster: Cluster,
        log: ClientLog,
        make_watchdog: MakeClientWatchdog = ClientWatchdog,
    ):
        self._user = user_settings
        self._needs = needs
        self._cluster = cluster
        self._log = log
        self._make_watchdog = make_watchdog
        self._pid = os.getpid()
        self._connection: Connection | None = None
        self.listener: SourceListener | None = None
        self.topics: list[str] = []
        self.in_callback = False
        """Whether the listener is answering a rebalance, for which the client waits."""

    @property
    @abstractmethod
    def protocol(self) -> settings.Protocol:
        """The group protocol in use, or the one that is tried first."""

    @property
    def connection(self) -> Connection:
        """The client in use. RunError if there is none, WrongProcessError after a fork."""
        if self._connection is None:
            raise RunError("the source is closed, or has not subscribed yet")
        if os.getpid() != self._pid:
            raise WrongProcessError(
                "this worker was started in another process: Kafka's client does not survive a"
                " fork; start the worker after forking, or spawn processes"
            )
        return self._connection

    def _connect(self) -> Connection:
        conf = settings.consumer_settings(self._user, self._needs, self.protocol)
        conf = {**conf, **token_setting(conf, self._cluster.oauth_token)}
        return Connection(conf, self._log, self._make_watchdog)

    @abstractmethod
    def subscribe(self, topics: Sequence[str], listener: SourceListener) -> None:
        """Read these topics from now on, see ``Source.subscribe``."""

    @abstractmethod
    def widen(self, counts: Mapping[str, int]) -> None:
        """See ``Source.widen``."""

    @abstractmethod
    def current(self) -> Connection:
        """Return the client to poll, and call the listener."""

    @abstractmethod
    def on_fatal(self, error: KafkaError) -> None:
        """Continue with a new client if that can help; raise otherwise."""

    def concerns(self, error: KafkaError) -> bool:
        """Return whether an error of the client is relevant."""
        del error
        return True

    def raise_raised(self) -> None:  # noqa: B027 - most have no callbacks
        """Raise what the listener raised within a callback of the client."""

    def close(self, timeout_s: float) -> bool:
        """Leave the group. Return False if that did not end in time."""
        connection, self._connection = self._connection, None
        self.listener = None
        return connection is None or connection.close(timeout_s)
