"""All partitions of the topics, assigned manually: no group, no commits."""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping, Sequence
from typing import Final

from confluent_kafka import KafkaError

from window_consumer.kafka import errors, settings
from window_consumer.kafka.connection import Connection
from window_consumer.kafka.subscription import Subscription
from window_consumer.model.errors import RunError, WindowConsumerError
from window_consumer.model.log_events import LogEvent
from window_consumer.model.protocols import SourceListener
from window_consumer.model.record import TopicPartition

_ASK_S: Final = 5.0
_ASK_AGAIN_S: Final = 1.0

_CLOSE_LOST_S: Final = 0.05
"""How long to wait for a client that has lost its cluster."""


class ManualAssignment(Subscription):
    """Reads every partition of its topics. Owner: poll thread."""

    _must_ask = False
    """The topics have changed, and their partitions are still unknown."""
    _ask_at = 0.0
    _counts: Mapping[str, int] | None = None
    """The number of partitions of each topic, to assign in the next poll."""
    _begun = False
    """Whether the listener got its first partitions, even if there were none."""

    @property
    def protocol(self) -> settings.Protocol:
        """With this protocol, a client that joins no group asks no broker for one."""
        return "classic"

    def subscribe(self, topics: Sequence[str], listener: SourceListener) -> None:
        """Read all partitions of these topics; a later poll assigns them."""
        self.listener = listener
        self.topics = list(topics)
        self._must_ask, self._ask_at = True, 0.0
        if self._connection is None:
            self._connection = self._connect()

    def widen(self, counts: Mapping[str, int]) -> None:
        """Take new partitions in the next poll, and drop those that are gone."""
        self._counts = {topic: count for topic, count in counts.items() if topic in self.topics}

    def current(self) -> Connection:
        """Return the client to poll, after assigning the current partitions."""
        connection = self.connection
        if connection.watchdog.is_lost(connection.consumer):
            self._replace(connection)
        if self._must_ask and time.monotonic() >= self._ask_at:
            self._ask()
        if self._counts is not None:
            counts, self._counts = self._counts, None
            self._assign(counts)
        return self.connection

    def _ask(self) -> None:
        """Ask how many partitions there are; without an answer, ask again later."""
        try:
            found = self._cluster.topics(self.topics, _ASK_S, deadline_s=_ASK_S)
        except WindowConsumerError as error:
            self._ask_at = time.monotonic() + _ASK_AGAIN_S
            if self.listener is not None:
                self.listener.on_error(error)
        else:
            self._must_ask = False
            self._counts = {name: topic.partitions for name, topic in found.items()}

    def _assign(self, counts: Mapping[str, int]) -> None:
        """Call the listener for new and removed partitions."""
        listener, assignment = self.listener, self.connection.assignment
        assert listener is not None
        held = set(assignment.names)
        there = {
            TopicPartition(topic, number)
            for topic, count in counts.items()
            for number in range(count)
        }
        if gone := sorted(held - there):
            listener.on_revoked(gone)
            assignment.unassign(gone)
            self.connection.give_up(gone)
        new = sorted(there - held)
        if new or not self._begun:
            self._begun = True
            assignment.take(new)
            listener.on_assigned(new)

    def _replace(self, lost: Connection) -> None:
        """Replace a client that no longer sends requests; the listener does not notice."""
        self._log.log(
            logging.WARNING,
            "the cluster answers, but this client sends no requests: continuing with a new client",
            event=LogEvent.CLIENT_REPLACED,
        )
        self._connection = self._connect()
        self._connection.assignment.continue_from(lost.assignment)
        lost.close(_CLOSE_LOST_S)

    def concerns(self, error: KafkaError) -> bool:
        """Ignore that no group is permitted: the client looks for its coordinator anyway."""
        return bool(error.code() != KafkaError.GROUP_AUTHORIZATION_FAILED)

    def on_fatal(self, error: KafkaError) -> None:
        """Raise: for a client outside groups, neither waiting nor a new client can help."""
        what = f"worker {self._needs.worker}"
        raise RunError(f"the client cannot continue: {errors.translate(error, what)}")
