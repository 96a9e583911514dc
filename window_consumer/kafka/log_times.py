"""Offsets by time, on any broker."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import chain

from window_consumer.kafka.topic_reader import TopicReader
from window_consumer.model.offset_ranges import Span
from window_consumer.model.record import TIMESTAMP_NOT_AVAILABLE, Message, TopicPartition


def offsets_at(
    reader: TopicReader, logs: Mapping[TopicPartition, Span], time_ms: int
) -> dict[TopicPartition, int]:
    """Return the first offset of each log whose record is at least this recent, else its end."""
    found = reader.offsets_at(list(logs), time_ms)
    silent = {name: logs[name] for name, at in found.items() if at is None and logs[name].count}
    ends = {name: Span(span.end - 1, span.end) for name, span in silent.items()}
    if any(_is_since(each, time_ms) for each in chain.from_iterable(reader.read(ends))):
        # The embedded broker cannot look up times, and its logs are small.
        found |= _searched(reader, silent, time_ms)
    return {name: logs[name].end if at is None else at for name, at in found.items()}


def _searched(
    reader: TopicReader, logs: Mapping[TopicPartition, Span], time_ms: int
) -> dict[TopicPartition, int | None]:
    found: dict[TopicPartition, int | None] = dict.fromkeys(logs)
    for message in chain.from_iterable(reader.read(logs)):
        name = TopicPartition(message.topic(), message.partition())
        if found[name] is None and _is_since(message, time_ms):
            found[name] = message.offset()
    return found


def _is_since(message: Message, time_ms: int) -> bool:
    kind, milliseconds = message.timestamp()
    return kind != TIMESTAMP_NOT_AVAILABLE and bool(milliseconds >= time_ms)
