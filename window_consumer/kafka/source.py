"""A Source on confluent-kafka's Consumer: one member of one group, or a reader of all partitions.

One thread owns the client's consumer object and makes one call at a time. The client's callbacks
only record, except for rebalances, which must be answered before they return.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from confluent_kafka import KafkaError, KafkaException
from confluent_kafka import TopicPartition as ClientPartition

from window_consumer.kafka import errors, log_times, settings
from window_consumer.kafka.batches import Names, drop, has_errors, read_headers
from window_consumer.kafka.client_log import ClientLog
from window_consumer.kafka.cluster import Cluster
from window_consumer.kafka.cluster.log_ranges import LogQuestions
from window_consumer.kafka.connection import Connection
from window_consumer.kafka.manual_assignment import ManualAssignment
from window_consumer.kafka.membership import Membership
from window_consumer.kafka.subscription import Subscription
from window_consumer.kafka.topic_reader import TopicReader
from window_consumer.kafka.watchdogs.assignment import DEFAULT_TIMES, AssignmentTimes
from window_consumer.kafka.watchdogs.client import ClientWatchdog, MakeClientWatchdog
from window_consumer.model.errors import BrokerUnavailableError, RunError, WindowConsumerError
from window_consumer.model.offset_ranges import Span
from window_consumer.model.protocols import (
    Batch,
    Commit,
    CommitResults,
    CommittedOffset,
    SourceListener,
    TopicFacts,
)
from window_consumer.model.record import TopicPartition


class KafkaSource:
    """Reads a worker's topics as a member of its group, or all of them. Owner: poll thread."""

    def __init__(
        self,
        user_settings: Mapping[str, Any],
        needs: settings.ConsumerNeeds,
        cluster: Cluster,
        log: ClientLog,
        make_watchdog: MakeClientWatchdog = ClientWatchdog,
        assignment_times: AssignmentTimes = DEFAULT_TIMES,
    ):
        self._subscription: Subscription = (
            ManualAssignment(user_settings, needs, cluster, log, make_watchdog)
            if needs.group is None
            else Membership(user_settings, needs, cluster, log, make_watchdog, assignment_times)
        )
        self._user_settings = user_settings
        self._log = log
        self._cluster = cluster
        self._names = Names()
        committed = user_settings.get("isolation.level") != "read_uncommitted"
        self._logs = LogQuestions(lambda name: cluster.ask_for_log(name, committed=committed))

    @property
    def protocol(self) -> settings.Protocol:
        """The group protocol in use, or the one that is tried first."""
        return self._subscription.protocol

    def subscribe(self, topics: Sequence[str], listener: SourceListener) -> None:
        """Join the group for these topics, or change what is read."""
        self._subscription.subscribe(topics, listener)

    def widen(self, counts: Mapping[str, int]) -> None:
        """Learn how many partitions the topics have; a group assigns new ones itself."""
        self._subscription.widen(counts)

    # ---- records

    def poll(self, max_records: int, timeout_s: float) -> Sequence[Batch]:
        """Return records, a batch for each partition, and serve the listener."""
        connection = self._subscription.current()
        moved = connection.assignment.moved
        gathered: dict[TopicPartition, Batch] = {}
        errors_between: list[Any] = []
        try:
            for chunk in connection.chunks(max_records, timeout_s):
                drop(gathered, moved)
                records = chunk
                if has_errors(chunk):
                    records = [message for message in chunk if message.error() is None]
                    errors_between += [message for message in chunk if message.error()]
                unreadable = read_headers(records)
                self._names.add(gathered, records, connection.assignment.topics)
                for message in unreadable:
                    name = self._names.of(message.topic(), message.partition())
                    gathered[name].unreadable.append(message.offset())
        except KafkaException as exception:
            connection.record_error(exception)
        moved.clear()
        self._report(connection)
        if errors_between:
            self._record_errors(connection, errors_between)
            if not gathered:
                self._report(connection)
        drop(gathered, moved)
        return list(gathered.values())

    def _record_errors(self, connection: Connection, messages: list[Any]) -> None:
        """Record errors. Those of a partition are reported after the records read before them.

        That is in the next poll, or at once if there are no records to return.
        """
        for message in messages:
            if message.topic() is None:
                connection.troubles.append(message.error())
            else:
                connection.assignment.record_problem(message, message.error())

    def _report(self, connection: Connection) -> None:
        """Report the client's callbacks to the listener; raise pending exceptions."""
        self._subscription.raise_raised()
        answers = connection.commits.take()
        if answers and self._subscription.listener is not None:
            self._subscription.listener.on_committed(answers)
        for name, error in connection.assignment.take_problems().items():
            self._report_error(error, name)
        while connection.troubles:
            self._report_error(connection.troubles.pop(0), None)

    def _report_error(self, error: KafkaError, name: TopicPartition | None) -> None:
        listener = self._subscription.listener
        if errors.is_fatal(error):
            self._subscription.on_fatal(errors.behind_fatal(error))
        elif listener is None or not self._subscription.concerns(error):
            return
        elif name is not None and errors.is_out_of_range(error):
            listener.on_out_of_range(name)
        else:
            listener.on_error(errors.translate(error, str(name or "broker")))

    # ---- positions

    def start(self, offsets: Mapping[TopicPartition, int | None]) -> None:
        """Start reading assigned partitions at these offsets; those with None stay paused."""
        self._subscription.connection.assignment.start(offsets)

    def seek(self, name: TopicPartition, offset: int) -> None:
        """Continue reading a partition at this offset, paused or not."""
        self._subscription.connection.assignment.seek(name, offset)

    def pause(self, names: Sequence[TopicPartition]) -> None:
        """Deliver nothing from these partitions; prefetched records are discarded."""
        self._subscription.connection.assignment.pause(names)

    def positions(self, names: Sequence[TopicPartition]) -> Mapping[TopicPartition, int]:
        """Return each partition's position; those never read are left out."""
        return self._subscription.connection.assignment.positions(names)

    def log_ends(self, names: Sequence[TopicPartition]) -> Mapping[TopicPartition, int]:
        """Return the ends (exclusive) of the logs, as reported by the last fetches."""
        return self._subscription.connection.assignment.log_ends(names)

    def log_range(self, name: TopicPartition, timeout_s: float) -> tuple[int, int]:
        """Return a log's first offset and its end. Raises BrokerUnavailableError."""
        try:
            found = self._subscription.connection.consumer.get_watermark_offsets(
                ClientPartition(*name), timeout=timeout_s, cached=False
            )
        except KafkaException as exception:
            raise _in_words(exception, f"log of {name}") from exception
        if found is None:
            raise BrokerUnavailableError(f"log of {name}: no answer within {timeout_s:g} s")
        low, high = found
        return low, high

    def log_ranges(
        self, names: Sequence[TopicPartition], timeout_s: float
    ) -> Mapping[TopicPartition, tuple[int, int] | WindowConsumerError]:
        """Return each log's first offset and end, or why not; a missing answer stays requested."""
        return self._logs.answers(names, timeout_s)

    def offsets_at(
        self, logs: Mapping[TopicPartition, tuple[int, int]], time_ms: int, timeout_s: float
    ) -> Mapping[TopicPartition, int]:
        """Return each log's first offset whose record is at least this recent, else its end."""
        spans = {name: Span(*log) for name, log in logs.items()}
        token = self._cluster.oauth_token
        with TopicReader(
            self._user_settings, self._log, oauth_token=token, deadline_s=timeout_s
        ) as reader:
            return log_times.offsets_at(reader, spans, time_ms)

    def facts(self, topics: Sequence[str], timeout_s: float) -> Mapping[str, TopicFacts]:
        """Return what the cluster reports about topics; those that do not exist are left out."""
        found = self._cluster.topics(topics, timeout_s, deadline_s=timeout_s)
        return {name: TopicFacts(each.partitions, each.topic_id) for name, each in found.items()}

    # ---- commits

    def commit(self, commits: Sequence[Commit]) -> None:
        """Send commits; the listener gets the answers in a later ``poll``."""
        connection = self._subscription.connection
        connection.commits.send(connection.consumer, commits)

    def commit_now(self, commits: Sequence[Commit], timeout_s: float) -> CommitResults:
        """Send commits and wait for the answers; no answer in time is a failure.

        Within a rebalance callback only the client's own blocking call can wait. It takes no
        timeout; the broker connection's timeouts bound it.
        """
        connection = self._subscription.connection
        if not commits:
            return {}
        if self._subscription.in_callback:
            return connection.commits.send_and_block(connection.consumer, commits)
        return connection.commit_and_wait(commits, timeout_s)

    def member(self) -> object:
        """Return the client's metadata of the group, for a transaction."""
        return self._subscription.connection.consumer.consumer_group_metadata()

    def committed(
        self, names: Sequence[TopicPartition], timeout_s: float
    ) -> Mapping[TopicPartition, CommittedOffset]:
        """Return the commits. Raise a WindowConsumerError without an answer."""
        wanted = [ClientPartition(*name) for name in names]
        try:
            found = self._subscription.connection.consumer.committed(wanted, timeout=timeout_s)
        except KafkaException as exception:
            raise _in_words(exception, "committed offsets") from exception
        answers = {}
        for partition in found:
            name = self._names.of(partition.topic, partition.partition)
            if partition.error is not None:
                raise RunError(f"committed offset of {name}: {errors.text_of(partition.error)}")
            offset = partition.offset if partition.offset >= 0 else None
            answers[name] = CommittedOffset(offset, partition.metadata or "")
        return answers

    # ---- the end

    def close(self, timeout_s: float) -> bool:
        """Leave the group. Return False if that did not end in time."""
        return self._subscription.close(timeout_s)


def _in_words(exception: KafkaException, where: str) -> WindowConsumerError:
    error = errors.cause_of(exception)
    if error is None:
        return RunError(f"{where}: {exception}")
    if errors.is_without_leader(error):
        return BrokerUnavailableError(f"{where}: no broker known for it: {errors.text_of(error)}")
    return errors.translate(error, where)
