"""Reads topics without a group, on any broker."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from tests.kernel import client_log
from window_consumer.audit.balance import Balance, balance, effective
from window_consumer.audit.count import AuditCount, decode
from window_consumer.dlq.dead_letter import DeadLetter, read_dead_letter
from window_consumer.kafka.cluster.groups import committed_offsets
from window_consumer.kafka.topic_reader import TopicReader
from window_consumer.model.offset_ranges import Span
from window_consumer.model.record import Message
from window_consumer.trace.event import TraceEvent
from window_consumer.trace.event_batch import decoded


def read_all(client: Mapping[str, Any], topic: str) -> list[Message]:
    """Return all records up to the current end of a topic, by partition and offset."""
    with reader_of(client) as reader:
        return reader.read_all(topic)


def spans(client: Mapping[str, Any], topic: str) -> dict[int, Span]:
    """Return the offsets that each partition of a topic holds now."""
    with reader_of(client) as reader:
        return {name.partition: span for name, span in reader.spans(topic).items()}


def committed(client: Mapping[str, Any], group: str, topic: str) -> dict[int, int]:
    """Return the committed offset of each partition; those without one are left out."""
    return committed_offsets(client, group, topic)


def dead_letter(record: Message) -> DeadLetter:
    """Return a record of a dead-letter topic with its parsed headers."""
    return read_dead_letter(record)


def events(batches: Iterable[Message]) -> list[TraceEvent]:
    """Return the events of records of the trace topic."""
    return [event for batch in batches for event in decoded(batch.value())]


def counts(records: Iterable[Message]) -> list[AuditCount]:
    """Return the counts in records of the audit topic."""
    return [count for record in records for count in decode(record.value())]


def balances(records: Iterable[Message]) -> dict[str, Balance]:
    """Return the balance of each topic from records of the audit topic."""
    effect = effective(counts(records)).counts
    return {each.topic: each for each in balance(effect)}


def reader_of(client: Mapping[str, Any]) -> TopicReader:
    """Return a reader of whole topics, for one thread."""
    return TopicReader({"fetch.wait.max.ms": 10, "log_level": 0, **client}, client_log())
