"""Deletes dead letters that are no longer needed: finds the cut, and deletes up to it.

Kafka deletes only from the beginning of a log. So everything before the first dead letter that is
recent enough is deleted, resolved or not.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Any, Final, Self

from attrs import field, frozen

from window_consumer.config.units import UnitError, parse_duration
from window_consumer.dlq.dead_letter import WrittenBy, read_dead_letter
from window_consumer.dlq.reader import DeadLetterTopic
from window_consumer.model.conditions.values import moment_ms
from window_consumer.model.errors import UsageError
from window_consumer.model.offset_ranges import Span
from window_consumer.model.record import TopicPartition

_OFFSET: Final = re.compile(r"[0-9]{1,18}")


@frozen
class Before:
    """Where to stop deleting: exactly one of the two fields is set."""

    time_ms: int | None = None
    """Milliseconds since 1970, compared with the time at which a dead letter was written."""
    offset: int | None = None

    @classmethod
    def parse(cls, text: str, now_ms: int) -> Self:
        """Read a time, an age or an offset; ages count back from ``now_ms``. Raises ValueError."""
        if _OFFSET.fullmatch(text):
            return cls(offset=int(text))
        moment = moment_ms(text)
        if moment is not None:
            return cls(time_ms=moment)
        try:
            return cls(time_ms=now_ms - round(parse_duration(text) * 1000))
        except UnitError:
            raise ValueError(
                f"{text!r} is neither a time such as 2026-11-21T10:00, nor an age such as 14d, nor"
                " an offset"
            ) from None


@frozen
class PurgePoint:
    """The range to delete from one partition."""

    name: TopicPartition
    span: Span
    """The offsets to delete; holes in the log make the records fewer."""
    left: int
    """The number of remaining offsets."""
    topic: DeadLetterTopic = field(repr=False)

    def as_json(self) -> dict[str, Any]:
        """Return plain values."""
        return {
            "topic": self.name.topic,
            "partition": self.name.partition,
            "first": self.span.first,
            "before": self.span.end,
            "offsets": self.span.count,
            "left": self.left,
        }


def cuts_of(
    topics: Sequence[DeadLetterTopic], before: Before, partition: int | None = None
) -> list[PurgePoint]:
    """Return the range to delete from each partition, without empty ones.

    Raises UsageError for a topic that is not known to hold dead letters, and for an offset that
    could belong to several partitions.
    """
    cuts = [cut for topic in topics for cut in _cuts(topic, before, partition)]
    for cut in cuts:
        _check_holds_dead_letters(cut)
    return cuts


def _cuts(topic: DeadLetterTopic, before: Before, partition: int | None) -> Iterator[PurgePoint]:
    spans = topic.reader.spans(topic.name)
    if partition is not None:
        spans = {name: span for name, span in spans.items() if name.partition == partition}
        if not spans:
            raise UsageError(f"--partition {partition}: {topic.name} has no such partition")
    for name, end in _ends(topic, spans, before).items():
        span = spans[name]
        cut = Span(span.first, max(span.first, min(end, span.end)))
        if cut.count:
            yield PurgePoint(name, cut, span.end - cut.end, topic)


def _ends(
    topic: DeadLetterTopic, spans: dict[TopicPartition, Span], before: Before
) -> dict[TopicPartition, int]:
    if before.time_ms is not None:
        found = topic.reader.offsets_at(list(spans), before.time_ms)
        offsets = {name: found.get(name) for name in spans}
        return {name: spans[name].end if at is None else at for name, at in offsets.items()}
    if len(spans) > 1:
        raise UsageError(
            f"--before an offset: {topic.name} has {len(spans)} partitions: choose one with"
            " --partition"
        )
    return dict.fromkeys(spans, before.offset or 0)


def _check_holds_dead_letters(cut: PurgePoint) -> None:
    """Raise UsageError unless the topic holds dead letters: a typo must not empty another topic."""
    if cut.topic.worker is not None:
        return
    for records in cut.topic.reader.read({cut.name: cut.span}):
        if read_dead_letter(records[0]).written_by is WrittenBy.UNKNOWN:
            raise UsageError(
                f"{cut.name}: its first record is not a known dead letter, so nothing was deleted:"
                " delete records of such topics with Kafka's own kafka-delete-records.sh"
            )
        return


def purge(cuts: Sequence[PurgePoint]) -> dict[TopicPartition, int]:
    """Delete, and return each log's new first offset; raise what the cluster denies."""
    first: dict[TopicPartition, int] = {}
    for topic in dict.fromkeys(cut.topic for cut in cuts):
        ends = {cut.name: cut.span.end for cut in cuts if cut.topic is topic}
        first.update(topic.cluster.delete_records(ends))
    return first
