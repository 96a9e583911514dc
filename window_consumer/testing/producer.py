"""Writes a test's records: values as tests like to write them, partitions as Java chooses them."""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping, Sequence
from typing import Any

from window_consumer.config.problems import did_you_mean
from window_consumer.model.errors import UsageError
from window_consumer.model.protocols import Clock, Headers
from window_consumer.model.record import Call, Record, TopicPartition
from window_consumer.testing.fake_broker import FakeBroker
from window_consumer.testing.fake_log import FakeMessage
from window_consumer.testing.fake_topics import partition_of

Value = bytes | str | Mapping[str, Any] | Sequence[Any] | float | bool | None
HeaderValues = Mapping[str, str | bytes | None] | Sequence[tuple[str, str | bytes | None]]


def make_record(  # noqa: PLR0913 - what a record may have, by name
    value: Value = None,
    key: bytes | str | None = None,
    *,
    topic: str = "test",
    partition: int = 0,
    offset: int = 0,
    headers: HeaderValues = (),
    timestamp: int | None = None,
    attempt: int = 1,
    state: Any = None,
) -> Record:
    """Return a record, for a test that calls a handler by itself.

    ``value``, ``key`` and ``headers`` are written as for ``TestApp.send``, ``timestamp`` is in
    milliseconds since 1970. UsageError for a value that JSON cannot say.
    """
    message = FakeMessage(
        TopicPartition(topic, partition),
        offset,
        key.encode() if isinstance(key, str) else key,
        _bytes_of(value),
        _headers_of(headers),
        timestamp,
    )
    return Record.of(message, Call(attempt, state))


class TestProducer:
    """Appends records to the topics of a fake broker. Owner: one thread."""

    __test__ = False  # pytest would take its name for a class of tests

    def __init__(self, broker: FakeBroker, clock: Clock, sources: Mapping[str, Collection[str]]):
        self._broker = broker
        self._clock = clock
        self._sources = sources
        """The topics that each worker reads."""
        self._keyless = 0

    def write(
        self,
        topic: str,
        value: Value,
        key: bytes | str | None,
        *,
        headers: HeaderValues,
        partition: int | None,
        timestamp: int | None,
    ) -> FakeMessage:
        """Write a record, see ``TestApp.send``; UsageError for what cannot be written."""
        count = self._partitions_of(topic)
        raw_key = key.encode() if isinstance(key, str) else key
        if partition is None:
            partition = self._choose(raw_key, count)
        elif not 0 <= partition < count:
            raise UsageError(
                f"{topic} has {count} partitions, 0 to {count - 1}: there is no {partition}; give"
                " TestApp(topics={...}) another number"
            )
        when = self._clock.wall_ms() if timestamp is None else timestamp
        raw_value, pairs = _bytes_of(value), _headers_of(headers)
        return self._broker.produce(topic, partition, raw_key, raw_value, pairs, when)

    def _choose(self, key: bytes | None, partitions: int) -> int:
        if key is not None:
            return partition_of(key, partitions)
        chosen = self._keyless % partitions
        self._keyless += 1
        return chosen

    def _partitions_of(self, topic: str) -> int:
        count = self._broker.topics.partitions(topic)
        if count:
            return count
        read = sorted({name for names in self._sources.values() for name in names})
        hint = did_you_mean(topic, read)
        raise UsageError(
            f"there is no topic {topic!r}: workers read {', '.join(read) or 'none'}"
            f"{'; ' if hint else ''}{hint}"
        )


def _bytes_of(value: Value) -> bytes | None:
    if value is None or isinstance(value, bytes):
        return value
    if isinstance(value, str):
        return value.encode()
    try:
        return json.dumps(value).encode()
    except (TypeError, ValueError) as error:
        raise UsageError(
            f"a value is bytes, text, None, or what JSON can say; {value!r} is none of these"
            f" ({error})"
        ) from error


def _headers_of(headers: HeaderValues) -> Headers:
    pairs = headers.items() if isinstance(headers, Mapping) else headers
    return [(name, value.encode() if isinstance(value, str) else value) for name, value in pairs]
