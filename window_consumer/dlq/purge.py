"""Deleting dead letters that nobody will need: what is to go, and making it go.

Kafka deletes from the beginning of a log only. So everything goes that stands before the first
dead letter that is young enough, whatever became of it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from attrs import field, frozen

from window_consumer.dlq.dead_letter import (
    WrittenBy,
    read_dead_letter,
)
from window_consumer.dlq.reader import DeadLetterTopic
from window_consumer.kafka.topic_reader import Span
from window_consumer.model.errors import UsageError
from window_consumer.model.record import TopicPartition


@frozen
class Before:
    """Where to stop deleting: one of the two is given."""

    time_ms: int | None = None
    """Milliseconds since 1970, compared with the time when a dead letter was written."""
    offset: int | None = None


@frozen
class PurgePoint:
    """What is to be deleted of one partition."""

    name: TopicPartition
    span: Span
    """The offsets that are to go; holes in the log make the records fewer."""
    left: int
    """Offsets that stay."""
    topic: DeadLetterTopic = field(repr=False)


def cuts_of(
    topics: Sequence[DeadLetterTopic], before: Before, partition: int | None = None
) -> list[PurgePoint]:
    """Return what would go; partitions of which nothing would go are left out.

    Raises UsageError for a topic that is not known to hold dead letters, and for an offset that
    could mean several partitions.
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
    """Keep a slip of the hand from emptying a topic that holds something else."""
    if cut.topic.worker is not None:
        return
    for records in cut.topic.reader.read({cut.name: cut.span}):
        if read_dead_letter(records[0]).written_by is WrittenBy.UNKNOWN:
            raise UsageError(
                f"{cut.name}: its first record is no dead letter that we know, nothing was deleted:"
                " delete records of such topics with Kafka's own kafka-delete-records.sh"
            )
        return


def purge(cuts: Sequence[PurgePoint]) -> dict[TopicPartition, int]:
    """Delete; return each log's first offset from now on. Raises what the cluster denies."""
    first: dict[TopicPartition, int] = {}
    for topic in dict.fromkeys(cut.topic for cut in cuts):
        ends = {cut.name: cut.span.end for cut in cuts if cut.topic is topic}
        first.update(topic.cluster.delete_records(ends))
    return first
