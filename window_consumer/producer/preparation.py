"""Prepares records with more than topic, key and value."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any, Literal

from attrs import frozen

from window_consumer.kafka.traced_producer import WatchedSend
from window_consumer.model import headers as names
from window_consumer.model import traceparent
from window_consumer.model.produce import HeaderPairs, Produce, Serializer
from window_consumer.model.sending import OpenTrace, SendWatcher
from window_consumer.producer.future import DetailedSendFuture

BeforeSend = Callable[[Produce], Produce | None]


@frozen
class RecordPreparation:
    """The producer's processing of each record before it is sent."""

    serialize: Serializer | Mapping[str, Serializer] | None
    before_send: BeforeSend | None
    trace: OpenTrace | None
    watchers: tuple[SendWatcher, ...]

    @property
    def is_empty(self) -> bool:
        """Return whether there is nothing to do."""
        return self == RecordPreparation(None, None, None, ())

    def record(
        self,
        topic: str,
        key: Any,
        value: Any,
        headers: HeaderPairs,
        partition: int | None,
        timestamp: int | None,
    ) -> Produce:
        """Return the record to send; raises what the application's functions raise."""
        serialize = self.serialize
        if isinstance(serialize, Mapping):
            serialize = serialize.get(topic)
        if serialize is not None and value is not None:
            value = serialize(value)
        record = Produce(
            topic, key, value, headers=headers, partition=partition, timestamp=timestamp
        )
        if self.before_send is None:
            return record
        changed = self.before_send(record)
        if changed is None:
            return record
        if not isinstance(changed, Produce):
            raise TypeError(
                f"before_send must return a Produce or None, not {type(changed).__name__}"
            )
        return changed

    def future(self, record: Produce, record_id: str, now_ms: int) -> DetailedSendFuture:
        """Return the record's future, and notify watchers of its start."""
        future = DetailedSendFuture()
        future.topic, future.key, future.value = record.topic, record.key, record.value
        future.partition = -1 if record.partition is None else record.partition
        future.timestamp = record.timestamp or 0
        future.answer = future.callbacks = future.watched = None
        future.queued_bytes = 0
        pairs = list(record.headers)
        given = dict(pairs)
        if names.ID not in given:
            pairs.append((names.ID, record_id.encode()))
        self._add_parent(pairs, given)
        if self.trace is not None or self.watchers:
            # Producer and consumer must count it in the same time bucket.
            future.timestamp = future.timestamp or now_ms
            if names.SENT_AT not in given:
                pairs.append((names.SENT_AT, str(now_ms).encode()))
            future.watched = WatchedSend(
                None if self.trace is None else self.trace.sends, self.watchers, record.topic, None
            )
            size = len(record.value or b"")
            future.watched.begin(record.key, size, future.timestamp, pairs)
        future.headers = [*pairs]
        return future

    def _add_parent(self, pairs: list[tuple[str, bytes | None]], given: Mapping[str, Any]) -> None:
        if traceparent.HEADER in given:
            return
        current = traceparent.current if self.trace is None else self.trace.parent
        with suppress(Exception):
            parent = current()
            if parent is not None:
                pairs.append((traceparent.HEADER, parent.encode()))


Compression = Literal["none", "gzip", "snappy", "lz4", "zstd"]
