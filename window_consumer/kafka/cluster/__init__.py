"""What the cluster reports about itself: topics, ids, ACLs and limits. Also creates topics."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import Future
from itertools import chain, count
from typing import Any

from confluent_kafka import IsolationLevel, TopicCollection, TopicPartition
from confluent_kafka.admin import NewPartitions, OffsetSpec

from window_consumer.kafka import errors
from window_consumer.kafka.client_log import ClientLog
from window_consumer.kafka.cluster.admin_connection import AdminConnection
from window_consumer.kafka.cluster.answers import (
    NOT_READY_S,
    AlreadyThereError,
    NoGroupError,
    UnsupportedError,
    patience_s,
)
from window_consumer.kafka.cluster.coordinator import (
    GroupQuestion,
    committed_offsets,
    wait_for_coordinator,
)
from window_consumer.kafka.cluster.groups import PartitionProgress
from window_consumer.kafka.cluster.log_ranges import LogQuestion
from window_consumer.kafka.cluster.topics import ConsumerGroup, NewCopyTopic, Topic
from window_consumer.kafka.oauth import OauthToken
from window_consumer.kafka.watchdogs.client import ClientWatchdog, MakeClientWatchdog
from window_consumer.model import record
from window_consumer.model.errors import BrokerUnavailableError, MissingTopicError, RunError

_ASK_S = 5.0

_LATEST: OffsetSpec = OffsetSpec.latest()  # type: ignore[no-untyped-call] # the client's stubs
_EARLIEST: OffsetSpec = OffsetSpec.earliest()  # type: ignore[no-untyped-call] # as above


class Cluster:
    """Requests to the cluster, each with a deadline. Any thread may ask, one at a time."""

    def __init__(
        self,
        settings: Mapping[str, Any],
        log: ClientLog,
        oauth_token: OauthToken | None = None,
        make_watchdog: MakeClientWatchdog = ClientWatchdog,
    ):
        self._admin = AdminConnection(settings, log, oauth_token, make_watchdog)
        self.bootstrap = self._admin.bootstrap
        self.oauth_token = oauth_token

    @property
    def is_embedded(self) -> bool:
        """Return whether the last broker that answered is an embedded one."""
        return self._admin.is_embedded

    def wait_until_there(self, timeout_s: float, on_wait: Callable[[str, float], None]) -> None:
        """Return once a broker answers, see ``AdminConnection.wait_until_there``."""
        self._admin.wait_until_there(timeout_s, on_wait)

    def has_consumer_protocol(self) -> bool:
        """Return whether the brokers that have answered support the consumer group protocol."""
        return self._admin.has_consumer_protocol()

    def cluster_id(self, timeout_s: float = _ASK_S) -> str | None:
        """Return the cluster's id, or None if the cluster does not report it."""
        return self._admin.metadata("the cluster's id", timeout_s).cluster_id

    # ---- topics

    def topic_names(self, timeout_s: float = _ASK_S) -> list[str]:
        """Return the names of all topics that we may see."""
        return sorted(self._admin.metadata("list of topics", timeout_s).topics)

    def topics(
        self, names: Sequence[str], timeout_s: float = _ASK_S, deadline_s: float = NOT_READY_S
    ) -> dict[str, Topic]:
        """Describe topics; those that do not exist are left out.

        One request waits for up to ``timeout_s``, the first ones for less. While a broker is not
        ready, it is repeated for ``deadline_s``.

        Raises NotPermittedError if describing is denied, and another RunError for other failures.
        """
        end = time.monotonic() + max(timeout_s, deadline_s)

        def describe(wanted: Sequence[str], attempt: int) -> Mapping[str, Future[Any]]:
            return self._admin.client.describe_topics(
                TopicCollection(list(wanted)),
                include_authorized_operations=True,
                request_timeout=patience_s(attempt, timeout_s, end - time.monotonic()),
            )

        found = {}
        answers = describe(names, 0) if names else {}
        for name, first in answers.items():
            futures = chain([first], (describe([name], n)[name] for n in count(1)))
            try:
                description = self._admin.answer(futures, f"topic {name}", timeout_s, deadline_s)
            except MissingTopicError:
                continue
            except UnsupportedError:
                return self._topics_by_metadata(names, timeout_s)
            found[name] = Topic.described(description)
        return found

    def _topics_by_metadata(self, names: Sequence[str], timeout_s: float) -> dict[str, Topic]:
        """Describe topics from metadata, without ids and ACLs; librdkafka's mock needs this."""
        found = {}
        for name in names:
            metadata = self._admin.metadata(f"topic {name}", timeout_s, name).topics[name]
            if metadata.error is not None:
                error = errors.translate(metadata.error, f"topic {name}")
                if isinstance(error, MissingTopicError):
                    continue
                raise error
            replicas = next(iter(metadata.partitions.values())).replicas
            found[name] = Topic(name, len(metadata.partitions), len(replicas), None, None)
        return found

    def topic_config(self, name: str, timeout_s: float = _ASK_S) -> dict[str, str]:
        """Return a topic's settings, or nothing if the cluster does not report them."""
        return self._admin.settings_of("topic", name, timeout_s)

    def create(
        self,
        topics: Iterable[NewCopyTopic],
        timeout_s: float = 30.0,
        *,
        validate_only: bool = False,
    ) -> None:
        """Create topics, or with ``validate_only`` check whether they could be created.

        Existing topics are ignored. librdkafka's mock does not know this request; it creates a
        topic, with its own default number of partitions, when asked about one.
        """
        wanted = list(topics)
        if not wanted:
            return
        futures = self._admin.client.create_topics(
            [topic.request() for topic in wanted],
            operation_timeout=timeout_s,
            request_timeout=timeout_s,
            validate_only=validate_only,
        )
        for topic in wanted:
            try:
                self._admin.answer(
                    iter([futures[topic.name]]), f"creating topic {topic.name}", timeout_s
                )
            except AlreadyThereError:
                continue
            except UnsupportedError:
                if not validate_only:
                    self._topics_by_metadata([topic.name], timeout_s)

    def widen(self, name: str, partitions: int, timeout_s: float = 30.0) -> None:
        """Increase a topic's partitions to this number; does nothing if it has them already."""
        futures = self._admin.client.create_partitions(
            [NewPartitions(name, partitions)],
            operation_timeout=timeout_s,
            request_timeout=timeout_s,
        )
        self._admin.answer(iter([futures[name]]), f"adding partitions to {name}", timeout_s)

    def delete_records(
        self, before: Mapping[record.TopicPartition, int], timeout_s: float = 30.0
    ) -> dict[record.TopicPartition, int]:
        """Delete the records below these offsets; return each log's new first offset.

        Raises NotPermittedError, or another WindowConsumerError that names the first partition
        whose records were not deleted. Records of others may have been deleted.
        """
        wanted = [TopicPartition(*name, offset) for name, offset in before.items()]
        if not wanted:
            return {}
        answers = self._admin.client.delete_records(
            wanted, operation_timeout=timeout_s, request_timeout=timeout_s
        )
        found = {}
        for partition, future in answers.items():
            name = record.TopicPartition(partition.topic, partition.partition)
            done = self._admin.answer(iter([future]), f"deleting records of {name}", timeout_s)
            found[name] = int(done.low_watermark)
        return found

    # ---- groups and offsets

    def group(self, group: str, timeout_s: float = _ASK_S) -> ConsumerGroup:
        """Describe a consumer group; one that never existed has no members."""
        what = f"group {group}"
        with self._admin.suspecting():
            wait_for_coordinator(
                self._admin.conf, group, what, max(timeout_s, NOT_READY_S), self._admin.features
            )
        futures = (
            self._admin.client.describe_consumer_groups(
                [group], include_authorized_operations=True, request_timeout=timeout_s
            )[group]
            for _ in count()
        )
        try:
            description = self._admin.answer(futures, what, timeout_s)
        except (UnsupportedError, NoGroupError):
            return ConsumerGroup(None, None)
        return ConsumerGroup.described(description)

    def ask_for_group(self, group: str) -> GroupQuestion:
        """Request a group's description and return at once."""
        return GroupQuestion(self._admin.conf, self._admin.features, group, _ASK_S)

    def backlog(self, group: str, topic: str, timeout_s: float = _ASK_S) -> int:
        """Return how many offsets of a topic a group has not committed.

        Holes in the log count, so 0 means that nothing is left.
        """
        return sum(self.backlogs(group, topic, timeout_s).values())

    def backlogs(
        self, group: str, topic: str, timeout_s: float = _ASK_S
    ) -> dict[record.TopicPartition, int]:
        """Return the backlog of each partition; empty for a topic that does not exist."""
        found = self.progress(group, topic, timeout_s)
        return {name: each.end - max(each.committed, each.start) for name, each in found.items()}

    def progress(
        self, group: str, topic: str, timeout_s: float = _ASK_S, *, until_ms: int | None = None
    ) -> dict[record.TopicPartition, PartitionProgress]:
        """Return the group's commit and the log's range for each partition.

        With ``until_ms``, also the first offset whose record is of that time or later. Empty for a
        topic that does not exist.
        """
        topics = self.topics([topic], timeout_s).get(topic)
        if topics is None:
            return {}  # deleted since
        names = [TopicPartition(topic, partition) for partition in range(topics.partitions)]
        what = f"backlog of {topic}"
        committed = committed_offsets(
            self._admin.conf, group, names, what, timeout_s, self._admin.features
        )
        ends, starts = (
            self._log_ends(names, spec, what, timeout_s) for spec in (_LATEST, _EARLIEST)
        )
        olds = ends
        if until_ms is not None:
            spec: OffsetSpec = OffsetSpec.for_timestamp(until_ms)
            olds = self._log_ends(names, spec, what, timeout_s)
        found = {}
        for each in committed:
            number = each.partition
            old = ends[number] if olds[number] < 0 else olds[number]
            fields = (each.offset, each.metadata, starts[number], ends[number], old)
            found[record.TopicPartition(topic, number)] = PartitionProgress(*fields)
        return found

    def round_trip_s(self, timeout_s: float = _ASK_S) -> float:
        """Return how long a small request takes. Raise a WindowConsumerError without an answer."""
        started = time.monotonic()
        self.topic_names(timeout_s)
        return time.monotonic() - started

    def ask_for_log(
        self, name: record.TopicPartition, timeout_s: float = _ASK_S, *, committed: bool = True
    ) -> LogQuestion:
        """Request a log's range. With ``committed`` it ends before open transactions."""
        partition = TopicPartition(*name)
        level = IsolationLevel.READ_COMMITTED if committed else IsolationLevel.READ_UNCOMMITTED
        how = {"request_timeout": timeout_s}
        low = self._admin.client.list_offsets({partition: _EARLIEST}, **how)[partition]
        end = self._admin.client.list_offsets({partition: _LATEST}, isolation_level=level, **how)[
            partition
        ]
        return LogQuestion(low, end)

    def log_ends(
        self,
        names: Sequence[record.TopicPartition],
        timeout_s: float = _ASK_S,
        *,
        committed: bool = False,
    ) -> dict[record.TopicPartition, int]:
        """Return the ends (exclusive) of logs, or with ``committed`` where open transactions begin.

        Raise a WindowConsumerError without an answer.
        """
        partitions = [TopicPartition(*name) for name in names]
        level = IsolationLevel.READ_COMMITTED if committed else IsolationLevel.READ_UNCOMMITTED
        futures = self._admin.client.list_offsets(
            dict.fromkeys(partitions, _LATEST), isolation_level=level, request_timeout=timeout_s
        )
        return {
            name: self._admin.answer(iter([future]), f"log of {name}", timeout_s).offset
            for name, future in zip(names, futures.values(), strict=True)
        }

    def _log_ends(
        self, names: Sequence[TopicPartition], spec: OffsetSpec, what: str, timeout_s: float
    ) -> dict[int, int]:
        futures = self._admin.client.list_offsets(
            dict.fromkeys(names, spec), request_timeout=timeout_s
        )
        return {
            name.partition: self._admin.answer(iter([future]), what, timeout_s).offset
            for name, future in futures.items()
        }

    def broker_count(self, timeout_s: float = _ASK_S) -> int:
        """Return how many brokers are alive."""
        return len(self._admin.metadata("list of brokers", timeout_s).brokers)

    def broker_config(self, timeout_s: float = _ASK_S) -> dict[str, str]:
        """Return one broker's settings, or nothing if the cluster does not report them."""
        brokers = self._admin.metadata("list of brokers", timeout_s).brokers
        return self._admin.settings_of("broker", str(min(brokers)), timeout_s)

    def group_config(self, group: str, timeout_s: float = _ASK_S) -> dict[str, str]:
        """Return a group's settings, its own or the broker's; empty if none are reported."""
        try:
            return self._admin.settings_of("group", group, timeout_s)
        except BrokerUnavailableError:
            raise
        except RunError:
            return {}  # before Kafka 4.0 groups have no settings, and the request is invalid
