"""What the cluster reports about itself: topics, ids, ACLs and limits. Also creates topics."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from contextlib import contextmanager, suppress
from itertools import chain, count
from typing import Any

from attrs import define
from confluent_kafka import (
    IsolationLevel,
    KafkaError,
    KafkaException,
    TopicCollection,
    TopicPartition,
)
from confluent_kafka.admin import (
    AdminClient,
    ClusterMetadata,
    ConfigResource,
    NewPartitions,
    OffsetSpec,
)

from window_consumer.kafka import errors
from window_consumer.kafka.client_log import ClientLog
from window_consumer.kafka.cluster.answers import (
    NOT_READY_S,
    AlreadyThereError,
    NoGroupError,
    UnsupportedError,
    first_answer,
    in_words,
    patience_s,
)
from window_consumer.kafka.cluster.coordinator import (
    GroupQuestion,
    committed_offsets,
    wait_for_coordinator,
)
from window_consumer.kafka.cluster.features import Features
from window_consumer.kafka.cluster.groups import PartitionProgress
from window_consumer.kafka.cluster.log_ranges import LogQuestion
from window_consumer.kafka.cluster.topics import ConsumerGroup, NewCopyTopic, Topic
from window_consumer.kafka.oauth import OauthToken, token_setting
from window_consumer.kafka.settings import BOOTSTRAP
from window_consumer.kafka.watchdogs.client import ClientWatchdog, MakeClientWatchdog
from window_consumer.model import record
from window_consumer.model.errors import (
    AuthenticationError,
    BrokerUnavailableError,
    ConfigError,
    MissingTopicError,
    NotPermittedError,
    RunError,
)

_EMBEDDED = "mockCluster"
"""How the ids of librdkafka's mock clusters begin."""

_POLL_S = 0.2
_ASK_S = 5.0
_WAIT_S = 1.0
"""Timeout of one request to an absent broker; a stop is noticed between two requests."""


@define
class _Troubles:
    """What the client's error callback has reported since the last request."""

    absent: KafkaError | None = None
    refused: KafkaError | None = None

    def record(self, error: KafkaError) -> None:
        """Keep the last error of each kind."""
        if errors.is_authentication(error):
            self.refused = error
        else:
            self.absent = error


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
        given = (str(settings[key]) for key in sorted(BOOTSTRAP) if settings.get(key))
        self.bootstrap = ",".join(given)
        self.oauth_token = oauth_token
        self.is_embedded = False
        """The last broker that answered is an embedded one."""
        self._troubles = _Troubles()
        self._features = Features(log, settings)
        conf = {**settings, **self._features.settings(), **token_setting(settings, oauth_token)}
        self._make_watchdog = make_watchdog
        self._watchdog = make_watchdog(conf)
        conf["error_cb"] = self._on_error
        try:
            self._conf = conf
            self._client = AdminClient(conf, logger=self._features)
        except KafkaException as exception:
            raise ConfigError(f"kafka: {exception.args[0]}") from exception

    @property
    def _admin(self) -> AdminClient:
        """The client to ask. It is replaced after it has lost the cluster."""
        self._client.poll(0)  # serves the error callback
        if self._watchdog.is_lost(self._client):
            self._watchdog = self._make_watchdog(self._conf)
            self._client = AdminClient(self._conf, logger=self._features)
        return self._client

    def _on_error(self, error: KafkaError) -> None:
        self._troubles.record(error)
        self._watchdog.record_error(error)

    def wait_until_there(self, timeout_s: float, on_wait: Callable[[str, float], None]) -> None:
        """Return once a broker answers.

        Calls ``on_wait(reason, seconds so far)`` after each request without an answer. Raises
        ConfigError without an address and AuthenticationError at once, BrokerUnavailableError after
        ``timeout_s``.
        """
        if not self.bootstrap.strip(" ,"):
            raise ConfigError(
                "kafka.bootstrap.servers: is missing: the addresses of the brokers, as in"
                " broker-1:9092,broker-2:9092"
            )
        started = time.monotonic()
        while True:
            waited = time.monotonic() - started
            ask_s = max(_POLL_S, min(_WAIT_S, timeout_s - waited))
            try:
                found = self._admin.list_topics(timeout=ask_s)
                self.is_embedded = str(found.cluster_id).startswith(_EMBEDDED)
            except KafkaException as exception:
                self._raise_unless_absent(exception)
            else:
                return
            waited = time.monotonic() - started
            reason = errors.text_of(self._troubles.absent) if self._troubles.absent else "no answer"
            if hint := self._features.hint():
                reason = f"{reason}; {hint}"
            if waited >= timeout_s:
                raise BrokerUnavailableError(
                    f"no broker at {self.bootstrap} answered within {round(timeout_s, 1):g} s"
                    f" ({reason}): check kafka: bootstrap.servers and the network"
                )
            on_wait(reason, waited)

    def _raise_unless_absent(self, exception: KafkaException) -> None:
        self._client.poll(0)  # serves the error callback
        refused = self._troubles.refused
        if refused is not None:
            raise AuthenticationError(
                f"the cluster at {self.bootstrap} refused us: {errors.text_of(refused)}: check"
                " sasl.mechanism, sasl.username and the password in `kafka:`"
            ) from exception
        error = errors.cause_of(exception)
        if error is None or not errors.is_absence(error):
            raise in_words(exception, f"cluster at {self.bootstrap}") from exception
        self._watchdog.suspect()

    def has_consumer_protocol(self) -> bool:
        """Return whether the brokers that have answered support the consumer group protocol."""
        self._client.poll(0)  # serves the log
        return not self._features.no_consumer_protocol

    def cluster_id(self, timeout_s: float = _ASK_S) -> str | None:
        """Return the cluster's id, or None if the cluster does not report it."""
        return self._metadata("the cluster's id", timeout_s).cluster_id

    # ---- topics

    def topic_names(self, timeout_s: float = _ASK_S) -> list[str]:
        """Return the names of all topics that we may see."""
        return sorted(self._metadata("list of topics", timeout_s).topics)

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
            return self._admin.describe_topics(
                TopicCollection(list(wanted)),
                include_authorized_operations=True,
                request_timeout=patience_s(attempt, timeout_s, end - time.monotonic()),
            )

        found = {}
        answers = describe(names, 0) if names else {}
        for name, first in answers.items():
            futures = chain([first], (describe([name], n)[name] for n in count(1)))
            try:
                description = self._answer(futures, f"topic {name}", timeout_s, deadline_s)
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
            metadata = self._metadata(f"topic {name}", timeout_s, name).topics[name]
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
        return self._settings_of("topic", name, timeout_s)

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
        futures = self._admin.create_topics(
            [topic.request() for topic in wanted],
            operation_timeout=timeout_s,
            request_timeout=timeout_s,
            validate_only=validate_only,
        )
        for topic in wanted:
            try:
                self._answer(iter([futures[topic.name]]), f"making topic {topic.name}", timeout_s)
            except AlreadyThereError:
                continue
            except UnsupportedError:
                if not validate_only:
                    self._topics_by_metadata([topic.name], timeout_s)

    def widen(self, name: str, partitions: int, timeout_s: float = 30.0) -> None:
        """Increase a topic's partitions to this number; does nothing if it has them already."""
        futures = self._admin.create_partitions(
            [NewPartitions(name, partitions)],
            operation_timeout=timeout_s,
            request_timeout=timeout_s,
        )
        self._answer(iter([futures[name]]), f"adding partitions to {name}", timeout_s)

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
        answers = self._admin.delete_records(
            wanted, operation_timeout=timeout_s, request_timeout=timeout_s
        )
        found = {}
        for partition, future in answers.items():
            name = record.TopicPartition(partition.topic, partition.partition)
            done = self._answer(iter([future]), f"deleting records of {name}", timeout_s)
            found[name] = int(done.low_watermark)
        return found

    # ---- groups and offsets

    def group(self, group: str, timeout_s: float = _ASK_S) -> ConsumerGroup:
        """Describe a consumer group; one that never existed has no members."""
        what = f"group {group}"
        with self._suspecting():
            wait_for_coordinator(
                self._conf, group, what, max(timeout_s, NOT_READY_S), self._features
            )
        futures = (
            self._admin.describe_consumer_groups(
                [group], include_authorized_operations=True, request_timeout=timeout_s
            )[group]
            for _ in count()
        )
        try:
            description = self._answer(futures, what, timeout_s)
        except (UnsupportedError, NoGroupError):
            return ConsumerGroup(None, None)
        return ConsumerGroup.described(description)

    def ask_for_group(self, group: str) -> GroupQuestion:
        """Request a group's description and return at once."""
        return GroupQuestion(self._conf, self._features, group, _ASK_S)

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
        committed = committed_offsets(self._conf, group, names, what, timeout_s, self._features)
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
        low = self._admin.list_offsets({partition: _EARLIEST}, **how)[partition]
        end = self._admin.list_offsets({partition: _LATEST}, isolation_level=level, **how)[
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
        futures = self._admin.list_offsets(
            dict.fromkeys(partitions, _LATEST), isolation_level=level, request_timeout=timeout_s
        )
        return {
            name: self._answer(iter([future]), f"log of {name}", timeout_s).offset
            for name, future in zip(names, futures.values(), strict=True)
        }

    def _log_ends(
        self, names: Sequence[TopicPartition], spec: OffsetSpec, what: str, timeout_s: float
    ) -> dict[int, int]:
        futures = self._admin.list_offsets(dict.fromkeys(names, spec), request_timeout=timeout_s)
        return {
            name.partition: self._answer(iter([future]), what, timeout_s).offset
            for name, future in futures.items()
        }

    def broker_count(self, timeout_s: float = _ASK_S) -> int:
        """Return how many brokers are alive."""
        return len(self._metadata("list of brokers", timeout_s).brokers)

    def broker_config(self, timeout_s: float = _ASK_S) -> dict[str, str]:
        """Return one broker's settings, or nothing if the cluster does not report them."""
        brokers = self._metadata("list of brokers", timeout_s).brokers
        return self._settings_of("broker", str(min(brokers)), timeout_s)

    def group_config(self, group: str, timeout_s: float = _ASK_S) -> dict[str, str]:
        """Return a group's settings, its own or the broker's; empty if none are reported."""
        try:
            return self._settings_of("group", group, timeout_s)
        except BrokerUnavailableError:
            raise
        except RunError:
            return {}  # before Kafka 4.0 groups have no settings, and the request is invalid

    # ---- answers

    def _metadata(self, what: str, timeout_s: float, *topic: str) -> ClusterMetadata:
        with self._suspecting():
            try:
                return self._admin.list_topics(*topic, timeout=timeout_s)
            except KafkaException as exception:
                raise in_words(exception, what) from exception

    @contextmanager
    def _suspecting(self) -> Iterator[None]:
        """Treat a request without an answer as a reason to check whether the client is lost."""
        try:
            yield
        except BrokerUnavailableError:
            self._watchdog.suspect()
            raise

    def _answer(
        self,
        futures: Iterator[Future[Any]],
        what: str,
        timeout_s: float,
        deadline_s: float = NOT_READY_S,
    ) -> Any:
        def pause() -> None:
            self._watchdog.suspect()
            self._client.poll(_POLL_S)
            # The client sends to the controller that it knows. In KRaft mode that is any broker,
            # and the others report one that has died as alive for some seconds.
            with suppress(KafkaException):
                self._client.list_topics(timeout=_WAIT_S)

        with self._suspecting():
            return first_answer(
                futures, what, timeout_s=timeout_s, deadline_s=deadline_s, pause=pause
            )

    def _settings_of(self, kind: str, name: str, timeout_s: float) -> dict[str, str]:
        """Return the settings of a topic or broker; empty if the cluster does not report them."""
        resource = ConfigResource(kind, name)
        futures = (
            self._admin.describe_configs([resource], request_timeout=timeout_s)[resource]
            for _ in count()
        )
        try:
            entries = self._answer(futures, f"settings of {kind} {name}", timeout_s)
        except (UnsupportedError, NotPermittedError):
            return {}
        return {key: entry.value for key, entry in entries.items() if entry.value is not None}
