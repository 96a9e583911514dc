"""Reads topics up to their current end, for everything except workers.

Partitions are assigned manually: no member joins a group, no rebalance happens, and a killed
process leaves no session behind. Nothing is committed; ``group_progress`` adds that.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from itertools import chain
from typing import Any, Final, Self

from confluent_kafka import Consumer, KafkaError, KafkaException
from confluent_kafka import TopicPartition as ClientPartition

from window_consumer.kafka import errors
from window_consumer.kafka.batches import has_errors, read_headers
from window_consumer.kafka.client_log import ClientLog
from window_consumer.kafka.oauth import OauthToken, token_setting
from window_consumer.kafka.settings import OF_MEMBERS, Settings
from window_consumer.model.errors import (
    BrokerUnavailableError,
    ConfigError,
    MissingTopicError,
    RunError,
)
from window_consumer.model.offset_ranges import Span
from window_consumer.model.record import Message, TopicPartition

_EOF = KafkaError._PARTITION_EOF  # noqa: SLF001 - local error codes begin with an underscore
_GROUP_DENIED = KafkaError.GROUP_AUTHORIZATION_FAILED
_BATCH: Final = 1_000
_POLL_S: Final = 0.1
_FIND_S: Final = 1.0
"""How long a scan waits for a topic's leaders; the client keeps asking by itself."""

_ANSWER_S: Final = 20.0
"""How long a request may take."""

_STILL_S: Final = 30.0
"""How long no record may arrive although more exist."""


class TopicReader:
    """Reads the current contents of topics. Owner: one thread; use it as a context manager.

    All errors are WindowConsumerErrors: ConfigError for settings that the client refuses,
    MissingTopicError, NotPermittedError, AuthenticationError, and BrokerUnavailableError if nothing
    arrives for half a minute, or for ``deadline_s``.
    """

    def __init__(
        self,
        user_settings: Mapping[str, Any],
        log: ClientLog,
        *,
        group: str = "window-consumer-reader",
        oauth_token: OauthToken | None = None,
        deadline_s: float | None = None,
    ):
        """``deadline_s`` bounds the time for an answer and the time without records."""
        self._answer_s = _ANSWER_S if deadline_s is None else deadline_s
        self._still_s = _STILL_S if deadline_s is None else deadline_s
        self._found: set[str] = set()
        """Topics that the client knows."""
        self._troubles: list[KafkaError] = []
        conf = {
            **_settings(user_settings, group),
            **token_setting(user_settings, oauth_token),
            "error_cb": self._troubles.append,
        }
        try:
            self.consumer = Consumer(conf, logger=log)
        except KafkaException as exception:
            raise ConfigError(f"kafka: {exception.args[0]}") from exception

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the connections."""
        self.consumer.close()

    # ---- questions

    def partitions(self, topic: str) -> list[TopicPartition]:
        """Return a topic's partitions. Raise MissingTopicError if there is no such topic."""
        with in_our_words(f"topic {topic}"):
            metadata = self.consumer.list_topics(topic, timeout=self._answer_s).topics[topic]
            if metadata.error is not None:
                raise KafkaException(metadata.error)
        self._found.add(topic)
        if not metadata.partitions:
            raise MissingTopicError(f"topic {topic} does not exist")
        return [TopicPartition(topic, number) for number in sorted(metadata.partitions)]

    def spans(self, topic: str) -> dict[TopicPartition, Span]:
        """Return what each partition of a topic holds now. Raises MissingTopicError."""
        names = self.partitions(topic)
        with in_our_words(f"topic {topic}"):
            return {name: self._span(name) for name in names}

    def _span(self, name: TopicPartition) -> Span:
        """Return a log's first offset and its end; wait for a leader that is not ready."""
        deadline = time.monotonic() + self._answer_s
        while True:
            try:
                found: Any = self.consumer.get_watermark_offsets(
                    ClientPartition(*name), timeout=self._answer_s, cached=False
                )
            except KafkaException as exception:
                error = errors.cause_of(exception)
                passing = error is not None and errors.is_leader_moving(error)
                if not passing or time.monotonic() > deadline:
                    raise
                time.sleep(_POLL_S)
            else:
                if found is not None:
                    return Span(*found)
                raise BrokerUnavailableError(f"log of {name}: no answer in {self._answer_s:g} s")

    def offsets_at(
        self, names: Sequence[TopicPartition], time_ms: int
    ) -> dict[TopicPartition, int | None]:
        """Return the first offset whose record is at least this recent, None if all are older.

        ``time_ms`` counts from 1970. Raises a RunError if the cluster does not answer.
        """
        wanted = [ClientPartition(*name, time_ms) for name in names]
        with in_our_words("offsets by time"):
            found = self.consumer.offsets_for_times(wanted, timeout=self._answer_s)
        offsets = {}
        for each in found:
            name = TopicPartition(each.topic, each.partition)
            if each.error is not None:
                raise errors.translate(each.error, f"offset by time of {name}")
            offsets[name] = each.offset if each.offset >= 0 else None
        return offsets

    # ---- records

    def scan(
        self, spans: Mapping[TopicPartition, Span], *, awaits_transactions: bool = False
    ) -> Scan:
        """Start reading these spans; this ends the previous scan.

        A span with an open transaction ends before it, unless the reader should wait for the
        transaction's end and continue behind it.
        """
        self._find({name.topic for name, span in spans.items() if span.count})
        return Scan(
            self.consumer,
            spans,
            self._still_s,
            self._troubles,
            awaits_transactions=awaits_transactions,
        )

    def _find(self, topics: Iterable[str]) -> None:
        """Ask for topics' leaders. The client does so by itself, but only once a second."""
        for topic in sorted(set(topics) - self._found):
            with suppress(KafkaException):  # reading it reports the problem
                self.consumer.list_topics(topic, timeout=_FIND_S)
                self._found.add(topic)

    def read(self, spans: Mapping[TopicPartition, Span]) -> Iterator[list[Message]]:
        """Yield the records of these spans in chunks, each partition's in order.

        Records that retention deletes meanwhile are left out. Only one read may run at a time.
        """
        scan = self.scan(spans)
        try:
            while records := scan.batch():
                yield records
        finally:
            self.consumer.unassign()

    def read_all(self, topic: str) -> list[Message]:
        """Return what a topic holds now, by partition and offset. Raises MissingTopicError."""
        records = chain.from_iterable(self.read(self.spans(topic)))
        return sorted(records, key=lambda each: (each.partition() or 0, each.offset() or 0))

    def at(self, name: TopicPartition, offset: int) -> Message | None:
        """Return one record, or None if there is none at this offset."""
        span = self.spans(name.topic).get(name)
        if span is None or not span.first <= offset < span.end:
            return None
        for records in self.read({name: Span(offset, offset + 1)}):
            return records[0]
        return None


class Scan:
    """One pass of a reader over spans. Owner: the reader's thread."""

    def __init__(
        self,
        consumer: Consumer,
        spans: Mapping[TopicPartition, Span],
        still_s: float,
        troubles: Sequence[KafkaError],
        *,
        awaits_transactions: bool = False,
    ):
        self.positions: dict[TopicPartition, int] = {}
        """The next offset of each partition, if known; at most its end."""
        self._consumer = consumer
        self._still_s = still_s
        self._troubles = troubles
        self._awaits_transactions = awaits_transactions
        self._ends = {name: span.end for name, span in spans.items() if span.count}
        self._open = set(self._ends)
        self._topics = ", ".join(sorted({name.topic for name in self._ends}))
        with in_our_words(self._topics):
            consumer.assign([ClientPartition(*name, spans[name].first) for name in self._ends])

    def batch(self, max_records: int = _BATCH) -> list[Message]:
        """Return the next records, at most ``max_records``, once there are any; none at the end."""
        deadline = time.monotonic() + self._still_s
        while self._open:
            with in_our_words(self._topics):
                # `consume` with a timeout would wait until a whole batch is complete.
                chunk = self._consumer.consume(max_records, 0) or self._consumer.consume(1, _POLL_S)
                records = self._taken(chunk)
            if records:
                return records
            if chunk:
                deadline = time.monotonic() + self._still_s
            elif time.monotonic() > deadline:
                raise self._absent()
        return []

    def _taken(self, chunk: list[Any]) -> list[Message]:
        """Return a chunk's records that belong to the spans; close partitions at their end."""
        if not chunk:
            return []
        positions = self._positions_after(chunk)
        # Calls for each record cost more than reading it, and nearly all chunks need none.
        beyond = any(position > self._ends[name] for name, position in positions.items())
        if beyond or has_errors(chunk):
            chunk = self._records(chunk)
        for name, position in positions.items():
            if name in self._open:
                self._advance(name, position)
        read_headers(chunk)
        return chunk

    def _positions_after(self, chunk: Sequence[Any]) -> dict[TopicPartition, int]:
        """Return the next offsets of the partitions in a chunk, and maybe of others."""
        if len(chunk) < len(self._open):  # the request costs 0.5 to 1.6 µs a partition
            return {_name_of(each): each.offset() + 1 for each in chunk if each.error() is None}
        found = self._consumer.position([ClientPartition(*name) for name in self._open])
        return {
            TopicPartition(each.topic, each.partition): each.offset
            for each in found
            if each.offset >= 0
        }

    def _records(self, chunk: Sequence[Any]) -> list[Any]:
        records = []
        for message in chunk:
            name = _name_of(message)
            error = message.error()
            if error is not None:
                self._heed(error, name, message.offset() or 0)
            elif name in self._open and message.offset() < self._ends[name]:
                records.append(message)
        return records

    def _heed(self, error: KafkaError, name: TopicPartition, offset: int) -> None:
        if error.code() == _EOF:
            # The last offsets may be transaction markers, or compacted away. Uncommitted records
            # may follow.
            if name in self._open:
                self._advance(name, offset)
                if not self._awaits_transactions:
                    self._close(name)
        elif not errors.is_absence(error) and error.code() != _GROUP_DENIED:
            # The client looks for its group's coordinator, which reading does not need.
            raise errors.translate(error, str(name))

    def _advance(self, name: TopicPartition, position: int) -> None:
        end = self._ends[name]
        self.positions[name] = min(position, end)
        if position >= end:
            self._close(name)

    def _close(self, name: TopicPartition) -> None:
        if name in self._open:
            self._open.remove(name)
            # A pause would outlast this scan, and a later one would get nothing.
            self._consumer.incremental_unassign([ClientPartition(*name)])

    def _absent(self) -> BrokerUnavailableError:
        why = errors.text_of(self._troubles[-1]) if self._troubles else "the client reports nothing"
        left = ", ".join(map(str, sorted(self._open)))
        return BrokerUnavailableError(
            f"{left}: nothing arrived for {self._still_s:g} s before the end was reached ({why})"
        )


def _name_of(message: Any) -> TopicPartition:
    return TopicPartition(message.topic(), message.partition())


@contextmanager
def in_our_words(where: str) -> Iterator[None]:
    """Raise the client's exceptions as a WindowConsumerError that names ``where``."""
    try:
        yield
    except KafkaException as exception:
        error = errors.cause_of(exception)
        if error is None:
            raise RunError(f"{where}: {exception}") from exception
        raise errors.translate(error, where) from exception


def _settings(user: Mapping[str, Any], group: str) -> Settings:
    ours: Settings = {
        "client.id": "wc-reader",
        # As for workers: a full prefetch queue must not stall for a second.
        "fetch.queue.backoff.ms": 5,
        "queued.max.messages.kbytes": 16 * 1024,
        # The client reports a partition's end when a fetch returns empty.
        "fetch.wait.max.ms": 50,
    }
    fixed: Settings = {
        "group.id": group,  # the client requires a name
        "enable.auto.commit": False,
        "enable.auto.offset.store": False,
        "enable.partition.eof": True,
        # Retention may have deleted the beginning meanwhile.
        "auto.offset.reset": "earliest",
        "isolation.level": "read_committed",
    }
    own = {key: value for key, value in user.items() if key not in OF_MEMBERS}
    return {**ours, **own, **fixed}
