"""The offsets of a backfill, and their division into chunks."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from typing import Final

from attrs import frozen

from window_consumer.kafka.topic_reader import TopicReader
from window_consumer.model.errors import UsageError
from window_consumer.model.offset_ranges import Span
from window_consumer.model.record import TopicPartition

Spans = Mapping[int, Span]
"""The offsets of each partition of a topic."""

_NO_LIMIT: Final = -1
"""``retention.ms`` of a topic that keeps everything."""

_AS_RETENTION: Final = -2
"""``local.retention.ms`` if it follows ``retention.ms``."""


@frozen
class WantedRange:
    """The range a user asks for; None means the beginning, or the current end."""

    topic: str
    from_ms: int | None = None
    to_ms: int | None = None
    """Times of records, in milliseconds since 1970; the end is exclusive."""
    from_offsets: Mapping[int, int] | None = None
    to_offsets: Mapping[int, int] | None = None
    """By partition; they take precedence over the times."""

    def __attrs_post_init__(self) -> None:
        if self.from_ms is not None and self.to_ms is not None and self.from_ms >= self.to_ms:
            raise UsageError(
                f"--from {readable_time(self.from_ms)} is not before"
                f" --to {readable_time(self.to_ms)}: the range is empty"
            )
        for partition, first in sorted((self.from_offsets or {}).items()):
            end = (self.to_offsets or {}).get(partition)
            if end is not None and first >= end:
                raise UsageError(
                    f"--from-offset {partition}={first} is not before --to-offset"
                    f" {partition}={end}: the range is empty"
                )


def resolve(wanted: WantedRange, reader: TopicReader) -> dict[int, Span]:
    """Return the offsets of each partition, without empty ones.

    A time means the first offset whose record is not older, as Kafka reports it. If producers'
    timestamps are out of order, records near the borders may be on either side. Raises
    MissingTopicError, and UsageError for a partition that does not exist.
    """
    logs = reader.spans(wanted.topic)
    names = list(logs)
    firsts = _at(reader, names, wanted.from_ms)
    ends = _at(reader, names, wanted.to_ms)
    for option, given in (("from", wanted.from_offsets), ("to", wanted.to_offsets)):
        for partition in given or ():
            if TopicPartition(wanted.topic, partition) not in logs:
                raise UsageError(
                    f"--{option}-offset {partition}=...: {wanted.topic} has the partitions 0 to"
                    f" {len(logs) - 1}"
                )
    found = {}
    for name, log in logs.items():
        first = log.first if wanted.from_ms is None else _or(firsts[name], log.end)
        end = log.end if wanted.to_ms is None else _or(ends[name], log.end)
        first = (wanted.from_offsets or {}).get(name.partition, first)
        end = (wanted.to_offsets or {}).get(name.partition, end)
        span = Span(max(first, log.first), min(end, log.end))
        if span.count:
            found[name.partition] = span
    return found


def _at(
    reader: TopicReader, names: list[TopicPartition], time_ms: int | None
) -> Mapping[TopicPartition, int | None]:
    return {} if time_ms is None else reader.offsets_at(names, time_ms)


def _or(offset: int | None, otherwise: int) -> int:
    return otherwise if offset is None else offset


def count_of(spans: Spans) -> int:
    """Return the most records that these offsets can have; gaps in the log make them fewer."""
    return sum(span.count for span in spans.values())


def next_chunk(left: Spans, records: int) -> dict[int, Span]:
    """Return the next offsets to run, about ``records`` at most: an equal share of each partition.

    So all partitions end together, and none remains for a few cores at the end.
    """
    chunks = max(1, -(-count_of(left) // records))
    return {
        partition: Span(span.first, span.first + -(-span.count // chunks))
        for partition, span in left.items()
        if span.count
    }


def without(left: Spans, ends: Mapping[int, int]) -> dict[int, Span]:
    """Return the rest of the range once all below ``ends`` (exclusive, by partition) is done."""
    rest = {
        partition: Span(max(span.first, ends.get(partition, span.first)), span.end)
        for partition, span in left.items()
    }
    return {partition: span for partition, span in rest.items() if span.count}


def warnings(
    wanted: WantedRange, spans: Spans, reader: TopicReader, settings: Mapping[str, str], now_ms: int
) -> Iterator[str]:
    """Yield warnings about the range before it is read.

    ``settings`` are the topic's, if the cluster reports them.
    """
    yield from _below_local(wanted, settings, now_ms)
    logs = reader.spans(wanted.topic)
    yield from _outside(wanted, {name.partition: log for name, log in logs.items()})
    if wanted.from_ms is None:
        return
    late = []
    for name, log in logs.items():
        span = spans.get(name.partition)
        if span is None or not log.first or span.first != log.first:
            continue
        oldest = reader.at(name, log.first)
        if oldest is not None and oldest.timestamp()[1] > wanted.from_ms:
            late.append((oldest.timestamp()[1], name))
    if late:
        time_ms, name = max(late)
        yield (
            f"retention has removed older records: {name} begins at {readable_time(time_ms)},"
            f" later than --from {readable_time(wanted.from_ms)}"
            + (f", and {len(late) - 1} more partitions begin late" if len(late) > 1 else "")
        )


def _outside(wanted: WantedRange, logs: Spans) -> Iterator[str]:
    """Yield a warning for each given offset that was deleted or is not written yet."""
    for option, given in (("from", wanted.from_offsets), ("to", wanted.to_offsets)):
        for partition, offset in sorted((given or {}).items()):
            log = logs[partition]
            if not log.first <= offset <= log.end:
                yield (
                    f"--{option}-offset {partition}={offset}: {wanted.topic} has the offsets"
                    f" {log.first} to {log.end} (exclusive) of partition {partition}"
                )


def _below_local(wanted: WantedRange, settings: Mapping[str, str], now_ms: int) -> Iterator[str]:
    """Warn if the range is in remote storage, from which brokers must fetch it."""
    if settings.get("remote.storage.enable", "false").lower() != "true":
        return
    local = int(settings.get("local.retention.ms", _AS_RETENTION))
    if local == _AS_RETENTION:
        local = int(settings.get("retention.ms", _NO_LIMIT))
    if local == _NO_LIMIT:
        return
    oldest = now_ms - local
    if wanted.from_ms is None or wanted.from_ms < oldest:
        yield (
            f"records older than {readable_time(oldest)} (local.retention.ms of {wanted.topic})"
            " are in remote storage: reading them is slow, may cost money, and evicts the brokers'"
            " cache; --rate limits it"
        )


def readable_time(ms: int) -> str:
    """Return a time for people."""
    return (
        datetime.fromtimestamp(ms / 1000, UTC).isoformat(timespec="seconds").replace("+00:00", "Z")
    )
