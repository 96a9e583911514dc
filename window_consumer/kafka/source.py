"""A Source on confluent-kafka's Consumer: one member of one group.

One thread owns the client's consumer object and is inside of it one call at a time; callbacks of
the client only take notes, except for rebalances, which have to be answered before they return.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from confluent_kafka import OFFSET_END, Consumer, KafkaError, KafkaException, Message
from confluent_kafka import TopicPartition as ClientPartition

from window_consumer.kafka import errors, settings
from window_consumer.kafka.client_log import ClientLog
from window_consumer.kafka.cluster import Cluster
from window_consumer.model.errors import (
    BrokerUnavailableError,
    CommitFailedError,
    RunError,
    WrongProcessError,
)
from window_consumer.model.protocols import (
    Commit,
    CommitResults,
    Committed,
    Listener,
    TopicFacts,
)
from window_consumer.model.record import Message as AnyMessage
from window_consumer.model.record import TopicPartition

CHUNK = 500
"""Records per call of the client's consume: 1.0-1.5 M/s with 500, less with 100 or with 5,000."""

_SERVE_S = 0.05

_JOIN_AGAIN_S = 1.0
"""Between a client that the broker refused and its successor: the broker is asked gently."""

# Functions of the message's class, for map: half the price of calling each message's method.
_error_of: Callable[[Any], KafkaError | None] = Message.error
_partition_of: Callable[[Any], int] = Message.partition  # type: ignore[assignment] # records have one
_topic_of: Callable[[Any], str] = Message.topic  # type: ignore[assignment] # records have one

Batches = Sequence[tuple[TopicPartition, list[AnyMessage]]]


class KafkaSource:
    """Reads a worker's topics as a member of its group. Owner: poll thread."""

    def __init__(
        self,
        user_settings: Mapping[str, Any],
        needs: settings.ConsumerNeeds,
        cluster: Cluster,
        log: ClientLog,
    ):
        self._user = user_settings
        self._needs = needs
        self._cluster = cluster
        self._log = log
        self._pid = os.getpid()
        self._protocols = settings.group_protocols(user_settings)
        self._consumer: Consumer | None = None
        self._incremental = True
        self._listener: Listener | None = None
        self._topics: list[str] = []
        self._names: dict[tuple[str, int], TopicPartition] = {}
        self._paused: set[TopicPartition] = set()
        self._assigned: dict[TopicPartition, None] = {}
        self._in_callback = False
        self._joined = False
        self._join_again_at: float | None = None
        self._raised: BaseException | None = None
        self._troubles: list[KafkaError] = []
        self._commit_results: list[dict[TopicPartition, CommitFailedError | None]] = []

    @property
    def protocol(self) -> settings.Protocol:
        """The group protocol in use, or the one that is tried first."""
        return self._protocols[0]

    # ---- membership

    def subscribe(self, topics: Sequence[str], listener: Listener) -> None:
        """Join the group for these topics, or change what the group reads."""
        self._listener = listener
        self._topics = list(topics)
        if self._consumer is None:
            self._choose_protocol()
            self._consumer = self._connect()
        self._consumer.subscribe(
            self._topics,
            on_assign=self._on_assign,
            on_revoke=self._on_revoke,
            on_lost=self._on_lost,
        )

    def _choose_protocol(self) -> None:
        if self.protocol != "consumer" or self._cluster.has_consumer_protocol():
            return
        if len(self._protocols) == 1:
            raise RunError(
                "the brokers do not know group.protocol: consumer (Kafka 4.0 and later do):"
                " leave it out, or set classic"
            )
        self._log.info("the brokers do not know the consumer group protocol: using classic")
        self._protocols = self._protocols[1:]

    def _connect(self) -> Consumer:
        conf = settings.consumer_settings(self._user, self._needs, self.protocol)
        strategy = str(conf.get("partition.assignment.strategy", ""))
        self._incremental = self.protocol == "consumer" or "cooperative" in strategy
        conf["error_cb"] = self._troubles.append
        conf["on_commit"] = self._on_commit
        if self._cluster.oauth_token is not None:
            conf["oauth_cb"] = self._cluster.oauth_token
        try:
            return Consumer(conf, logger=self._log)
        except KafkaException as exception:
            raise RunError(f"the consumer cannot be made: {exception.args[0]}") from exception

    def _on_assign(self, consumer: Consumer, partitions: list[ClientPartition]) -> None:
        if consumer is not self._consumer:
            return
        self._joined = True
        names = [self._name(p.topic, p.partition) for p in partitions]
        if not self._incremental:
            self._assigned.clear()
        self._assigned.update(dict.fromkeys(names))
        self._paused.difference_update(names)
        self._answer(lambda listener: listener.on_assigned(names))

    def _on_revoke(self, consumer: Consumer, partitions: list[ClientPartition]) -> None:
        if consumer is not self._consumer:
            return
        names = [self._name(p.topic, p.partition) for p in partitions]
        self._answer(lambda listener: listener.on_revoked(names))
        self._let_go(names)

    def _on_lost(self, consumer: Consumer, partitions: list[ClientPartition]) -> None:
        if consumer is not self._consumer:
            return
        names = [self._name(p.topic, p.partition) for p in partitions]
        self._answer(lambda listener: listener.on_lost(names))
        self._let_go(names)

    def _let_go(self, names: Sequence[TopicPartition]) -> None:
        for name in names:
            self._assigned.pop(name, None)
            self._paused.discard(name)

    def _answer(self, tell: Callable[[Listener], None]) -> None:
        """Call the listener from within a callback of the client, which must not raise."""
        if self._listener is None or self._raised is not None:
            return
        self._in_callback = True
        try:
            tell(self._listener)
        except BaseException as exception:
            self._raised = exception
        finally:
            self._in_callback = False

    # ---- records

    def poll(self, max_records: int, timeout_s: float) -> Batches:
        """Return records, by partition and in offset order, and serve the listener."""
        consumer = self._current()
        chunk = max(1, min(CHUNK, max_records))
        try:
            batch: list[Any] = consumer.consume(chunk, 0)
            if not batch and timeout_s > 0:
                batch = consumer.consume(1, timeout_s)
                if batch and chunk > 1:
                    batch += consumer.consume(chunk - 1, 0)
            elif len(batch) == chunk:
                while len(batch) < max_records:
                    more = consumer.consume(chunk, 0)
                    batch += more
                    if len(more) < chunk:
                        break
        except KafkaException as exception:
            error = errors.cause_of(exception)
            if error is None:
                raise
            self._troubles.append(error)
            batch = []
        self._report()
        if not batch:
            return ()
        if any(map(_error_of, batch)):
            batch = self._without_errors(batch)
        return self._by_partition(batch)

    def _by_partition(self, batch: list[AnyMessage]) -> Batches:
        """Split a batch; nearly always all of it comes from one partition."""
        if not batch:
            return ()
        partitions = list(map(_partition_of, batch))
        if len(self._topics) == 1:
            if partitions.count(partitions[0]) == len(batch):
                return ((self._name(self._topics[0], partitions[0]), batch),)
            topics: Sequence[str] = self._topics * len(batch)
        else:
            topics = list(map(_topic_of, batch))
        runs: dict[tuple[str, int], list[AnyMessage]] = {}
        for topic, partition, message in zip(topics, partitions, batch, strict=True):
            run = runs.get((topic, partition))
            if run is None:
                runs[topic, partition] = [message]
            else:
                run.append(message)
        return [(self._name(*key), run) for key, run in runs.items()]

    def _without_errors(self, batch: list[Any]) -> list[Any]:
        listener = self._listener
        records = []
        for message in batch:
            error = message.error()
            if error is None:
                records.append(message)
            elif listener is None:
                continue
            elif errors.is_fatal(error):
                self._on_fatal(errors.behind_fatal(error))
            elif error.code() in (KafkaError._AUTO_OFFSET_RESET, KafkaError.OFFSET_OUT_OF_RANGE):
                listener.on_out_of_range(self._name(message.topic(), message.partition()))
            else:
                listener.on_error(errors.translate(error, self._place(message)))
        return records

    def _report(self) -> None:
        """Tell the listener what the client's callbacks have noted; raise what has to be raised."""
        if self._raised is not None:
            raised, self._raised = self._raised, None
            raise raised
        while self._commit_results:
            results = self._commit_results.pop(0)
            if self._listener is not None:
                self._listener.on_committed(results)
        while self._troubles:
            error = self._troubles.pop(0)
            if errors.is_fatal(error):
                self._on_fatal(errors.behind_fatal(error))
            elif self._listener is not None:
                self._listener.on_error(errors.translate(error, "broker"))

    def _on_fatal(self, error: KafkaError) -> None:
        """Go on with a new client where that can help; raise otherwise.

        Helps: the classic protocol where the broker has no other, and patience where the group
        was forbidden to us, which the client itself has none for in the consumer protocol.
        """
        if errors.is_unsupported(error) and not self._joined and len(self._protocols) > 1:
            self._log.info(
                "the broker does not support the consumer group protocol (%s): using classic",
                errors.text_of(error),
            )
            self._protocols = self._protocols[1:]
            self._join_again()
        elif errors.is_permission(error):
            self._lose_everything()
            self._join_again_at = time.monotonic() + _JOIN_AGAIN_S
            if self._listener is not None:
                self._listener.on_error(errors.translate(error, f"group {self._needs.group}"))
        else:
            raise RunError(f"the client cannot go on: {errors.text_of(error)}")

    def _lose_everything(self) -> None:
        names = list(self._assigned)
        if names and self._listener is not None:
            self._listener.on_lost(names)
        self._let_go(names)

    def _join_again(self) -> None:
        """Replace a client that has given up."""
        self._join_again_at = None
        given_up, self._consumer = self._consumer, None
        self._close_client(given_up, timeout_s=_SERVE_S)
        self._troubles.clear()
        if self._listener is not None:
            self.subscribe(self._topics, self._listener)

    # ---- positions

    def start(self, offsets: Mapping[TopicPartition, int | None]) -> None:
        """Begin to read assigned partitions at these offsets; those with None stay paused."""
        consumer = self._usable()
        partitions = [
            ClientPartition(*name, OFFSET_END if offset is None else offset)
            for name, offset in offsets.items()
        ]
        if self._incremental:
            consumer.incremental_assign(partitions)
        else:
            consumer.assign(partitions)
        waiting = [name for name, offset in offsets.items() if offset is None]
        if waiting:
            self.pause(waiting)

    def seek(self, name: TopicPartition, offset: int) -> None:
        """Go on reading a partition at this offset, also where it was paused."""
        consumer = self._usable()
        target = ClientPartition(*name, offset)
        if name in self._paused:
            self._paused.discard(name)
            consumer.resume([ClientPartition(*name)])
        try:
            consumer.seek(target)
        except KafkaException:
            # A partition that reads nothing (its position was out of range) cannot seek: it is
            # assigned anew, which librdkafka allows at any time.
            self._assign_anew(consumer, target, name)

    def _assign_anew(
        self, consumer: Consumer, target: ClientPartition, name: TopicPartition
    ) -> None:
        if self._incremental:
            consumer.incremental_unassign([ClientPartition(*name)])
            consumer.incremental_assign([target])
            return
        others = [other for other in self._assigned if other != name]
        positions = consumer.position([ClientPartition(*other) for other in others])
        consumer.assign([target, *positions])
        paused = [ClientPartition(*other) for other in others if other in self._paused]
        if paused:
            consumer.pause(paused)

    def pause(self, names: Sequence[TopicPartition]) -> None:
        """Deliver nothing of these partitions; what was prefetched is thrown away."""
        self._paused.update(names)
        self._usable().pause([ClientPartition(*name) for name in names])

    def positions(self, names: Sequence[TopicPartition]) -> Mapping[TopicPartition, int]:
        """Return how far each partition was read; those never read are left out."""
        found = self._usable().position([ClientPartition(*name) for name in names])
        return {self._name(p.topic, p.partition): p.offset for p in found if p.offset >= 0}

    def log_range(self, name: TopicPartition, timeout_s: float) -> tuple[int, int]:
        """Return a log's first offset and its end; BrokerUnavailableError without an answer."""
        try:
            found = self._usable().get_watermark_offsets(
                ClientPartition(*name), timeout=timeout_s, cached=False
            )
        except KafkaException as exception:
            raise _in_words(exception, f"log of {name}") from exception
        if found is None:
            raise BrokerUnavailableError(f"log of {name}: no answer within {timeout_s:g} s")
        low, high = found
        return low, high

    def facts(self, topics: Sequence[str], timeout_s: float) -> Mapping[str, TopicFacts]:
        """Return what the cluster says of topics; those that do not exist are left out."""
        found = self._cluster.topics(topics, timeout_s)
        return {name: TopicFacts(each.partitions, each.topic_id) for name, each in found.items()}

    # ---- commits

    def commit(self, commits: Sequence[Commit]) -> None:
        """Send commits; the listener hears of them in a later ``poll``."""
        try:
            self._usable().commit(offsets=_client_offsets(commits), asynchronous=True)
        except KafkaException as exception:
            self._commit_results.append(_all_failed(commits, exception))

    def _on_commit(self, error: KafkaError | None, partitions: list[ClientPartition]) -> None:
        self._commit_results.append(self._results(error, partitions))

    def _results(
        self, error: KafkaError | None, partitions: Sequence[ClientPartition]
    ) -> dict[TopicPartition, CommitFailedError | None]:
        results: dict[TopicPartition, CommitFailedError | None] = {}
        for partition in partitions:
            failure = partition.error or error
            name = self._name(partition.topic, partition.partition)
            results[name] = None if failure is None else errors.commit_failure(failure)
        return results

    def commit_now(self, commits: Sequence[Commit], timeout_s: float) -> CommitResults:
        """Send commits and wait for the answers; no answer in time is a failure.

        Within a rebalance callback nothing but the client's own blocking call can wait, and it
        takes no timeout: there the broker connection's timeouts bound it.
        """
        if not commits:
            return {}
        consumer = self._usable()
        offsets = _client_offsets(commits)
        if self._in_callback:
            try:
                return self._results(None, consumer.commit(offsets=offsets, asynchronous=False))
            except KafkaException as exception:
                return _all_failed(commits, exception)
        return self._commit_and_wait(consumer, commits, timeout_s)

    def _commit_and_wait(
        self, consumer: Consumer, commits: Sequence[Commit], timeout_s: float
    ) -> CommitResults:
        missing = {commit.name for commit in commits}
        answers: dict[TopicPartition, CommitFailedError | None] = {}
        self.commit(commits)
        deadline = time.monotonic() + timeout_s
        while missing and time.monotonic() < deadline:
            consumer.poll(_SERVE_S)
            while self._commit_results:
                results = self._commit_results.pop(0)
                answers.update(results)
                missing.difference_update(results)
        late = CommitFailedError(f"no answer within {timeout_s:g} s")
        return {commit.name: answers.get(commit.name, late) for commit in commits}

    def committed(
        self, names: Sequence[TopicPartition], timeout_s: float
    ) -> Mapping[TopicPartition, Committed]:
        """Read what is committed; raises a RunError where the cluster does not answer."""
        try:
            found = self._usable().committed(
                [ClientPartition(*name) for name in names], timeout=timeout_s
            )
        except KafkaException as exception:
            raise _in_words(exception, "committed offsets") from exception
        answers = {}
        for partition in found:
            name = self._name(partition.topic, partition.partition)
            if partition.error is not None:
                raise RunError(f"committed offset of {name}: {errors.text_of(partition.error)}")
            offset = partition.offset if partition.offset >= 0 else None
            answers[name] = Committed(offset, partition.metadata or "")
        return answers

    # ---- the end

    def close(self, timeout_s: float) -> bool:
        """Leave the group; False when that did not end in time."""
        consumer, self._consumer = self._consumer, None
        self._listener = None
        return self._close_client(consumer, timeout_s)

    @staticmethod
    def _close_client(consumer: Consumer | None, timeout_s: float) -> bool:
        """Close on a thread of its own: the client's close can hang."""
        if consumer is None:
            return True
        closer = threading.Thread(target=consumer.close, name="wc-close", daemon=True)
        closer.start()
        closer.join(timeout_s)
        return not closer.is_alive()

    # ---- names

    def _current(self) -> Consumer:
        if self._join_again_at is not None and time.monotonic() >= self._join_again_at:
            self._join_again()
        return self._usable()

    def _usable(self) -> Consumer:
        if self._consumer is None:
            raise RunError("the source is closed, or has not subscribed yet")
        if os.getpid() != self._pid:
            raise WrongProcessError(
                "this worker was started in another process: Kafka's client does not survive a"
                " fork; start the worker after forking, or spawn processes"
            )
        return self._consumer

    def _name(self, topic: str, partition: int) -> TopicPartition:
        key = (topic, partition)
        name = self._names.get(key)
        if name is None:
            name = self._names[key] = TopicPartition(topic, partition)
        return name

    @staticmethod
    def _place(message: Any) -> str:
        topic = message.topic()
        return "broker" if topic is None else f"{topic}[{message.partition()}]"


def _client_offsets(commits: Sequence[Commit]) -> list[ClientPartition]:
    return [
        ClientPartition(*commit.name, commit.next_offset, commit.metadata) for commit in commits
    ]


def _all_failed(
    commits: Sequence[Commit], exception: KafkaException
) -> dict[TopicPartition, CommitFailedError | None]:
    error = errors.cause_of(exception)
    failure = CommitFailedError(str(exception)) if error is None else errors.commit_failure(error)
    return {commit.name: failure for commit in commits}


def _in_words(exception: KafkaException, where: str) -> Exception:
    error = errors.cause_of(exception)
    return RunError(f"{where}: {exception}") if error is None else errors.translate(error, where)
