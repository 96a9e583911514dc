"""How large the records of a range are, from a look at some of them."""

from __future__ import annotations

from attrs import frozen

from window_consumer.kafka.topic_reader import (
    Span,
    TopicReader,
)
from window_consumer.model.record import TopicPartition
from window_consumer.spark.backfill.ranges import Spans

_SAMPLE = 200
"""Records of each partition's beginning that are looked at ..."""

_MOST_PARTITIONS = 20
"""... and of how many partitions."""


@frozen
class Sizes:
    """What the records of a sample hold."""

    records: int
    bytes: int
    """Of keys and values."""
    offsets: int
    """That were looked at: fewer records are there where the log has holes."""

    def told(self, offsets: int) -> str:
        """Return what so many offsets hold, for people."""
        if not self.records:
            return "nothing, by the sample that was read"
        share = self.records / self.offsets
        total = self.bytes / self.records * share * offsets
        each = f"{self.bytes / self.records:,.0f} B of key and value each"
        return f"{share * offsets:,.0f} records, {_bytes(total)} ({each})"


def sizes_of(reader: TopicReader, topic: str, spans: Spans) -> Sizes:
    """Read the beginning of some partitions; compressed on the wire it may be less."""
    sample = {
        TopicPartition(topic, partition): Span(span.first, min(span.end, span.first + _SAMPLE))
        for partition, span in sorted(spans.items())[:_MOST_PARTITIONS]
    }
    records = size = 0
    for messages in reader.read(sample):
        records += len(messages)
        size += sum(len(each) + len(each.key() or b"") for each in messages)
    return Sizes(records, size, sum(span.count for span in sample.values()))


def _bytes(size: float) -> str:
    for unit in ("B", "kB", "MB", "GB"):
        if size < 1000:
            return f"{size:,.0f} {unit}" if unit == "B" else f"{size:,.1f} {unit}"
        size /= 1000
    return f"{size:,.1f} TB"
