"""Reads the end of an event topic: the events that no table contains yet.

Reading is bounded in time and size. Skipped parts are reported in notes, not as errors: the answers
from the table remain valid.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import Any, Final

from attrs import frozen

from window_consumer.kafka.client_log import ClientLog
from window_consumer.kafka.topic_reader import TopicReader
from window_consumer.model.errors import MissingTopicError, WindowConsumerError
from window_consumer.model.offset_ranges import Span
from window_consumer.model.record import TopicPartition
from window_consumer.trace.event import TraceEvent
from window_consumer.trace.event_batch import UnreadableBatchError, decoded

MOST_RECORDS: Final = 2_000
"""The most Kafka records to read, the newest: some million events."""

MOST_S: Final = 5.0
"""The longest time for reading, once Kafka has answered; a user waits."""

ANSWER_S: Final = 3.0
"""If Kafka is silent for this long, only the table answers."""


@frozen
class TailEnd:
    """The events found in the tail."""

    events: tuple[TraceEvent, ...] = ()
    notes: tuple[str, ...] = ()
    """The unread parts, with the reasons; one sentence each."""
    is_away: bool = False
    """Kafka did not answer."""


@frozen
class EventTail:
    """Reads the end of one event topic, with a new connection each time."""

    topic: str
    settings: Mapping[str, Any]
    """The user's Kafka properties."""
    log: ClientLog
    most_records: int = MOST_RECORDS
    most_s: float = MOST_S
    answer_s: float = ANSWER_S

    def read(
        self,
        since: Mapping[int, int] | None,
        may_have: Callable[[bytes], bool],
        fits: Callable[[TraceEvent], bool],
    ) -> TailEnd:
        """Return the matching events from ``since`` on, which has each partition's next offset.

        A partition without an entry starts at its first offset. If ``since`` is None (unknown), the
        newest records are read. ``may_have`` checks an encoded batch, so that irrelevant ones are
        not decoded.
        """
        try:
            with TopicReader(self.settings, self.log, deadline_s=self.answer_s) as reader:
                held = reader.spans(self.topic)
                spans, notes = _spans(held, since, self.most_records)
                events, unread, broken = _read(reader, spans, may_have, fits, self.most_s)
        except MissingTopicError:
            return TailEnd()
        except WindowConsumerError as error:
            return TailEnd(notes=(f"only the table was read: {error}",), is_away=True)
        if unread:
            notes.append(
                f"{self.topic}: reading stopped after {self.most_s:g} s, {unread:,} of its last"
                " records were not read: recent events may be missing"
            )
        if broken:
            notes.append(f"{self.topic}: {broken} of its last records cannot be read")
        return TailEnd(tuple(events), tuple(notes))


def _spans(
    held: Mapping[TopicPartition, Span], since: Mapping[int, int] | None, most_records: int
) -> tuple[dict[TopicPartition, Span], list[str]]:
    """Return the spans to read, and notes about the rest."""
    notes: list[str] = []
    spans: dict[TopicPartition, Span] = {}
    for name, span in held.items():
        first = span.first if since is None else since.get(name.partition, span.first)
        if first > span.end:
            notes.append(f"{name} was recreated or truncated after the table had read from it")
            first = span.first
        spans[name] = Span(max(first, span.first), span.end)
    total = sum(span.count for span in spans.values())
    if total > most_records:
        share = most_records // len(spans)
        spans = {name: Span(max(it.first, it.end - share), it.end) for name, it in spans.items()}
        looked_at = sum(span.count for span in spans.values())
        topic = next(iter(spans)).topic
        notes.append(
            f"{topic}: {total:,} records are not in the table yet, the newest {looked_at:,} were"
            " read: `window-consumer pipeline run trace` is behind"
        )
    return spans, notes


def _read(
    reader: TopicReader,
    spans: Mapping[TopicPartition, Span],
    may_have: Callable[[bytes], bool],
    fits: Callable[[TraceEvent], bool],
    most_s: float,
) -> tuple[list[TraceEvent], int, int]:
    """Return the matching events, the number of unread records, and that of unreadable ones."""
    found: list[TraceEvent] = []
    broken, nexts = 0, {name: span.first for name, span in spans.items()}
    deadline = time.monotonic() + most_s
    for messages in reader.read(spans):
        for message in messages:
            name = TopicPartition(message.topic() or "", message.partition() or 0)
            nexts[name] = (message.offset() or 0) + 1
            value = message.value()
            if value is None or not may_have(value):
                continue
            try:
                found += [event for event in decoded(value) if fits(event)]
            except UnreadableBatchError:
                broken += 1
            if time.monotonic() > deadline:
                break
        if time.monotonic() > deadline:
            return found, sum(span.end - nexts[name] for name, span in spans.items()), broken
    return found, 0, broken
