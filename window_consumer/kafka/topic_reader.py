"""Reading whole topics without a group: from where one likes to the end that they have now.

Nothing is committed and nobody is disturbed. Records of aborted transactions, and of those that are
still open, are left out.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from types import TracebackType
from typing import Any, Self

from attrs import frozen
from confluent_kafka import Consumer, KafkaError, KafkaException
from confluent_kafka import TopicPartition as ClientPartition

from window_consumer.kafka import errors
from window_consumer.kafka.batches import read_headers
from window_consumer.kafka.client_log import ClientLog
from window_consumer.kafka.oauth import (
    OauthToken,
    token_setting,
)
from window_consumer.kafka.settings import Settings
from window_consumer.model.errors import (
    BrokerUnavailableError,
    ConfigError,
    MissingTopicError,
    RunError,
    WindowConsumerError,
)
from window_consumer.model.record import (
    Message,
    TopicPartition,
)

_EOF = KafkaError._PARTITION_EOF  # noqa: SLF001 - local error codes begin with an underscore
_GROUP_DENIED = KafkaError.GROUP_AUTHORIZATION_FAILED
_BATCH = 1_000
_POLL_S = 0.1
_ANSWER_S = 20.0
"""How long a question may take."""

_STILL_S = 30.0
"""How long nothing may come although there is more."""

_OF_MEMBERS = frozenset(
    {
        "group.protocol",
        "group.remote.assignor",
        "group.instance.id",
        "heartbeat.interval.ms",
        "partition.assignment.strategy",
        "session.timeout.ms",
    }
)
"""They concern members of a group, which a reader is not."""


@frozen
class Span:
    """The offsets of a partition that are to be read: from the first up to, without, the end."""

    first: int
    end: int

    @property
    def count(self) -> int:
        """The most records that it can hold; holes in the log make them fewer."""
        return max(0, self.end - self.first)


class TopicReader:
    """Reads topics as they are. Owner: one thread; use it as a context manager.

    All errors are WindowConsumerErrors: ConfigError for settings that the client refuses,
    MissingTopicError, NotPermittedError, AuthenticationError, and BrokerUnavailableError where
    nothing comes for half a minute, or for ``patience_s``.
    """

    def __init__(
        self,
        user_settings: Mapping[str, Any],
        log: ClientLog,
        *,
        group: str = "window-consumer-reader",
        oauth_token: OauthToken | None = None,
        patience_s: float | None = None,
    ):
        """``patience_s`` bounds how long an answer may take, and how long nothing may come."""
        self._answer_s = _ANSWER_S if patience_s is None else patience_s
        self._still_s = _STILL_S if patience_s is None else patience_s
        self._troubles: list[KafkaError] = []
        conf = {
            **reader_settings(user_settings, group),
            **token_setting(user_settings, oauth_token),
            "error_cb": self._troubles.append,
        }
        try:
            self._consumer = Consumer(conf, logger=log)
        except KafkaException as exception:
            raise ConfigError(f"kafka: {exception.args[0]}") from exception

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """Let go of the connections."""
        self._consumer.close()

    # ---- questions

    def spans(self, topic: str) -> dict[TopicPartition, Span]:
        """Return what each partition of a topic holds now; raises MissingTopicError."""
        try:
            metadata = self._consumer.list_topics(topic, timeout=self._answer_s).topics[topic]
            if metadata.error is not None:
                raise errors.translate(metadata.error, f"topic {topic}")
            if not metadata.partitions:
                raise MissingTopicError(f"topic {topic} does not exist")
            names = [TopicPartition(topic, number) for number in sorted(metadata.partitions)]
            return {name: self._span(name) for name in names}
        except KafkaException as exception:
            raise self._in_words(exception, f"topic {topic}") from exception

    def _span(self, name: TopicPartition) -> Span:
        return Span(*log_range(self._consumer, ClientPartition(*name), self._answer_s))

    def offsets_at(
        self, names: Sequence[TopicPartition], time_ms: int
    ) -> dict[TopicPartition, int | None]:
        """Return the first offset whose record is not older than this, None where all are older.

        ``time_ms`` counts from 1970. Raises a RunError where the cluster cannot tell.
        """
        wanted = [ClientPartition(*name, time_ms) for name in names]
        try:
            found = self._consumer.offsets_for_times(wanted, timeout=self._answer_s)
        except KafkaException as exception:
            raise self._in_words(exception, "offsets by time") from exception
        offsets = {}
        for each in found:
            name = TopicPartition(each.topic, each.partition)
            if each.error is not None:
                raise errors.translate(each.error, f"offset by time of {name}")
            offsets[name] = each.offset if each.offset >= 0 else None
        return offsets

    # ---- records

    def read(self, spans: Mapping[TopicPartition, Span]) -> Iterator[list[Message]]:
        """Yield the records of these spans, some at a time, those of a partition in their order.

        What retention takes away while we read is left out. One reading at a time.
        """
        ends = {name: span.end for name, span in spans.items() if span.count}
        begins = [ClientPartition(*name, spans[name].first) for name in ends]
        try:
            self._consumer.assign(begins)
            heard_at = time.monotonic()
            while ends:
                # A single call would wait for a whole batch to come together.
                chunk = self._consumer.consume(1, _POLL_S)
                chunk += self._consumer.consume(_BATCH, 0)
                if chunk:
                    heard_at = time.monotonic()
                    records = self._records(chunk, ends)
                    if records:
                        yield records
                        heard_at = time.monotonic()
                elif time.monotonic() - heard_at > self._still_s:
                    raise self._absent(list(ends))
        except KafkaException as exception:
            where = ", ".join(map(str, ends))
            raise self._in_words(exception, where) from exception
        finally:
            self._consumer.unassign()

    def _records(self, chunk: Sequence[Any], ends: dict[TopicPartition, int]) -> list[Message]:
        """Return what belongs to the spans, and forget those that are read to their ends."""
        records = []
        for message in chunk:
            name = TopicPartition(message.topic(), message.partition())
            error = message.error()
            if error is not None:
                self._heed(error, name, ends)
                continue
            end = ends.get(name)
            if end is None:
                continue
            if message.offset() < end:
                records.append(message)
            if message.offset() >= end - 1:
                self._finish(name, ends)
        read_headers(records)
        return records

    def _heed(
        self, error: KafkaError, name: TopicPartition, ends: dict[TopicPartition, int]
    ) -> None:
        if error.code() == _EOF:
            # The last offsets may be markers of transactions, or compacted away.
            self._finish(name, ends)
        elif not errors.is_absence(error) and error.code() != _GROUP_DENIED:
            # The client looks for its group's coordinator, which a reader does not need.
            raise errors.translate(error, str(name))

    def _finish(self, name: TopicPartition, ends: dict[TopicPartition, int]) -> None:
        if ends.pop(name, None) is not None:
            # A pause would outlast this reading, and a later one would get nothing.
            self._consumer.incremental_unassign([ClientPartition(*name)])

    def at(self, name: TopicPartition, offset: int) -> Message | None:
        """Return one record, None where there is none at this offset."""
        span = self.spans(name.topic).get(name)
        if span is None or not span.first <= offset < span.end:
            return None
        for records in self.read({name: Span(offset, offset + 1)}):
            return records[0]
        return None

    # ---- errors

    def _absent(self, names: Sequence[TopicPartition]) -> BrokerUnavailableError:
        why = errors.text_of(self._troubles[-1]) if self._troubles else "the client says nothing"
        return BrokerUnavailableError(
            f"{', '.join(map(str, names))}: nothing came for {self._still_s:g} s before the end was"
            f" reached ({why})"
        )

    @staticmethod
    def _in_words(exception: KafkaException, where: str) -> WindowConsumerError:
        error = errors.cause_of(exception)
        return (
            RunError(f"{where}: {exception}") if error is None else errors.translate(error, where)
        )


def log_range(consumer: Consumer, name: ClientPartition, timeout_s: float) -> tuple[int, int]:
    """Return a log's first offset and its end; a leader that is not ready is waited for.

    Raises what the client raises, and BrokerUnavailableError where nobody answers in time.
    """
    deadline = time.monotonic() + timeout_s
    while True:
        try:
            found: Any = consumer.get_watermark_offsets(name, timeout=timeout_s, cached=False)
        except KafkaException as exception:
            error = errors.cause_of(exception)
            passing = error is not None and errors.is_leader_moving(error)
            if not passing or time.monotonic() > deadline:
                raise
            time.sleep(_POLL_S)
        else:
            if found is not None:
                first, end = found
                return first, end
            where = f"{name.topic}[{name.partition}]"
            raise BrokerUnavailableError(f"log of {where}: no answer within {timeout_s:g} s")


def reader_settings(user: Mapping[str, Any], group: str) -> Settings:
    """Return the settings of a consumer that joins no group, whose name the client wants anyway."""
    ours: Settings = {
        "client.id": "wc-reader",
        # As for workers: a full prefetch queue must not stand still for a second.
        "fetch.queue.backoff.ms": 5,
        "queued.max.messages.kbytes": 16 * 1024,
        # The end of a partition is told when a fetch comes back empty.
        "fetch.wait.max.ms": 50,
    }
    fixed: Settings = {
        "group.id": group,
        "enable.auto.commit": False,
        "enable.auto.offset.store": False,
        "enable.partition.eof": True,
        # Where retention took the beginning away meanwhile.
        "auto.offset.reset": "earliest",
        "isolation.level": "read_committed",
    }
    own = {key: value for key, value in user.items() if key not in _OF_MEMBERS}
    return {**ours, **own, **fixed}
