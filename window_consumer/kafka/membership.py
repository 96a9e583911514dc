"""Membership of a group: joining, assignments, and joining again."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from confluent_kafka import Consumer, KafkaError, KafkaException
from confluent_kafka import TopicPartition as ClientPartition

from window_consumer.kafka import errors, settings
from window_consumer.kafka.client_log import ClientLog
from window_consumer.kafka.cluster import Cluster
from window_consumer.kafka.connection import Connection
from window_consumer.kafka.subscription import Subscription
from window_consumer.kafka.watchdogs.assignment import (
    DEFAULT_TIMES,
    AssignmentTimes,
    AssignmentWatchdog,
)
from window_consumer.kafka.watchdogs.client import ClientWatchdog, MakeClientWatchdog
from window_consumer.model.errors import RunError
from window_consumer.model.log_events import LogEvent
from window_consumer.model.protocols import SourceListener
from window_consumer.model.record import TopicPartition

_LET_GO_S = 0.05
"""How long to wait for a client that has given up; it has no group to leave."""

_JOIN_AGAIN_S = 1.0
"""Pause between a client that the broker refused and its successor, to spare the broker."""

_PROBE_S = 0.5
"""How long a healthy coordinator may take for a small answer."""


class Membership(Subscription):
    """One member of one group, across all its clients. Owner: poll thread."""

    def __init__(
        self,
        user_settings: Mapping[str, Any],
        needs: settings.ConsumerNeeds,
        cluster: Cluster,
        log: ClientLog,
        make_watchdog: MakeClientWatchdog = ClientWatchdog,
        assignment_times: AssignmentTimes = DEFAULT_TIMES,
    ):
        super().__init__(user_settings, needs, cluster, log, make_watchdog)
        assert needs.group is not None
        group = self._group_name = needs.group
        self._protocols = settings.group_protocols(user_settings)
        self._joined = False
        self._join_again_at: float | None = None
        self._raised: BaseException | None = None
        self._watch = AssignmentWatchdog(
            lambda: cluster.ask_for_group(group),
            self._coordinator_answers,
            lambda: log.lines,
            times=assignment_times,
        )

    @property
    def protocol(self) -> settings.Protocol:
        """The group protocol in use, or the one that is tried first."""
        return self._protocols[0]

    def current(self) -> Connection:
        """Return the client to poll; it is a new one when it is time to join again."""
        if self._join_again_at is not None and time.monotonic() >= self._join_again_at:
            self._join_again()
        connection = self.connection
        if connection.watchdog.is_lost(connection.consumer):
            self._find_back()
        elif not self.topics:
            if self._watch.awaits_share:
                # Without topics, no group assigns anything.
                self._watch.awaits_share = False
                self._answer(lambda listener: listener.on_assigned([]))
        elif self.protocol == "consumer" and self._watch.is_deaf(
            connection.consumer.memberid, lambda: connection.assignment.names
        ):
            self._start_anew()
        elif self._watch.awaits_share and self._watch.gets_nothing:
            self._watch.awaits_share = False
            self._answer(lambda listener: listener.on_assigned([]))
        return self.connection

    def subscribe(self, topics: Sequence[str], listener: SourceListener) -> None:
        """Join the group for these topics, or change what the group reads.

        Without topics it waits outside the group, because the client cannot join without any.
        """
        self.listener = listener
        had_topics, self.topics = bool(self.topics), list(topics)
        if self._connection is None:
            self._choose_protocol()
            self._connection = self._connect()
        if not topics:
            return
        if not had_topics:
            self._watch.expect_share()
        self._connection.consumer.subscribe(
            self.topics, on_assign=self._on_assign, on_revoke=self._on_revoke, on_lost=self._on_lost
        )

    def _choose_protocol(self) -> None:
        if self.protocol != "consumer" or self._cluster.has_consumer_protocol():
            return
        if len(self._protocols) == 1:
            raise RunError(
                "the brokers do not support group.protocol: consumer (Kafka 4.0 and later do):"
                " omit it, or set classic"
            )
        self._log.info(
            LogEvent.PROTOCOL_DOWNGRADED,
            "the brokers do not support the consumer group protocol: using classic",
        )
        self._protocols = self._protocols[1:]

    def _connect(self) -> Connection:
        self._watch.expect_share()
        return super()._connect()

    def widen(self, counts: Mapping[str, int]) -> None:
        """Do nothing: the group assigns new partitions."""

    def _on_assign(self, consumer: Consumer, partitions: list[ClientPartition]) -> None:
        connection = self._of(consumer)
        if connection is not None:
            self._joined = True
            self._watch.awaits_share = False
            names = _names_of(partitions)
            connection.assignment.take(names)
            self._answer(lambda listener: listener.on_assigned(names))

    def _on_revoke(self, consumer: Consumer, partitions: list[ClientPartition]) -> None:
        connection = self._of(consumer)
        if connection is not None:
            names = _names_of(partitions)
            self._answer(lambda listener: listener.on_revoked(names))
            connection.give_up(names)

    def _on_lost(self, consumer: Consumer, partitions: list[ClientPartition]) -> None:
        connection = self._of(consumer)
        if connection is not None:
            names = _names_of(partitions)
            self._watch.expect_share()
            self._answer(lambda listener: listener.on_lost(names))
            connection.give_up(names)

    def _of(self, consumer: Consumer) -> Connection | None:
        """Return the connection; None for a client that is being closed, which is ignored."""
        connection = self._connection
        return connection if connection and connection.consumer is consumer else None

    def _answer(self, tell: Callable[[SourceListener], None]) -> None:
        """Call the listener from within a callback of the client, which must not raise."""
        if self.listener is None or self._raised is not None:
            return
        self.in_callback = True
        try:
            tell(self.listener)
        except BaseException as exception:
            self._raised = exception
        finally:
            self.in_callback = False

    # ---- trouble

    def on_fatal(self, error: KafkaError) -> None:
        """Continue with a new client if that can help; raise otherwise.

        The classic protocol helps if the broker supports no other. Waiting helps if we are not
        permitted to join, or our instance id still belongs to a crashed process. In the consumer
        protocol the client itself does not wait.
        """
        if errors.is_unsupported(error) and not self._joined and len(self._protocols) > 1:
            self._log.info(
                LogEvent.PROTOCOL_DOWNGRADED,
                "the broker does not support the consumer group protocol (%s): using classic",
                errors.text_of(error),
            )
            self._protocols = self._protocols[1:]
            self._join_again()
        elif errors.may_pass(error):
            self._lose_everything()
            self._join_again_at = time.monotonic() + _JOIN_AGAIN_S
            if self.listener is not None:
                self.listener.on_error(errors.translate(error, self._group))
        else:
            raise RunError(f"the client cannot continue: {errors.translate(error, self._group)}")

    @property
    def _group(self) -> str:
        return f"group {self._group_name}"

    def _lose_everything(self) -> None:
        connection = self.connection
        names = connection.assignment.names
        if names and self.listener is not None:
            self.listener.on_lost(names)
        connection.give_up(names)

    def _join_again(self) -> None:
        """Replace a client that has given up."""
        self._join_again_at = None
        given_up, self._connection = self._connection, None
        if given_up is not None:
            given_up.troubles.clear()
            given_up.close(_LET_GO_S)
        if self.listener is not None:
            self.subscribe(self.topics, self.listener)

    def _coordinator_answers(self) -> bool:
        """Send the coordinator a small request, on the connection that heartbeats use."""
        try:
            wanted = [ClientPartition(self.topics[0], 0)]
            self.connection.consumer.committed(wanted, timeout=_PROBE_S)
        except KafkaException:
            return False
        return True

    def _start_anew(self) -> None:
        """Leave the group and rejoin as another member, because this one gets no assignment."""
        self._log.log(
            logging.WARNING,
            "the group's coordinator has assigned partitions, but this member never learned of them"
            " (the answer to a heartbeat was lost, and the client does not ask again): rejoining",
            event=LogEvent.MEMBER_REJOINED,
        )
        names = self.connection.assignment.names
        self._answer(lambda listener: listener.on_revoked(names))
        self.connection.give_up(names)
        self._join_again()

    def _find_back(self) -> None:
        """Replace a client that no longer sends requests; it cannot leave the group."""
        self._log.log(
            logging.WARNING,
            "the cluster answers, but this client sends no requests: rejoining with a new client",
            event=LogEvent.CLIENT_REPLACED,
        )
        self._lose_everything()
        self._join_again()

    def raise_raised(self) -> None:
        """Raise what the listener raised within a callback of the client."""
        if self._raised is not None:
            raised, self._raised = self._raised, None
            raise raised


def _names_of(partitions: Sequence[ClientPartition]) -> list[TopicPartition]:
    return [TopicPartition(each.topic, each.partition) for each in partitions]
