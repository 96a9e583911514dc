"""Counts what becomes of a worker's records: listens to its Engine, and writes before it commits.

Counting is done on the poll thread, by the slice: what a commit covers has to be in the log before
the commit is sent.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from attrs import frozen

from window_consumer.core.ladder import FailedRecord
from window_consumer.core.metadata import decode
from window_consumer.core.observer import Observer
from window_consumer.core.offsets import after
from window_consumer.core.partition import Partition
from window_consumer.core.slices import Slice
from window_consumer.model import headers as names
from window_consumer.model.audit_count import Tier
from window_consumer.model.hop import of_copy
from window_consumer.model.outcome import Outcome
from window_consumer.model.protocols import Commit
from window_consumer.model.record import Message, TopicPartition
from window_consumer.telemetry.audit.pending import Pending, Stretch
from window_consumer.telemetry.audit.skew import SkewWatch
from window_consumer.telemetry.audit.sums import (
    CREATE_TIME,
    NO_TIMESTAMP,
    Columns,
    Timestamp,
    id_hash,
)

TIERS: Final = {
    Outcome.DONE: Tier.FINISHED,
    Outcome.SKIPPED: Tier.FILTERED,
    Outcome.MOVED: Tier.RETRIED,
    Outcome.DEAD_LETTERED: Tier.DEAD_LETTERED,
    Outcome.EXPIRED: Tier.EXPIRED,
    Outcome.DROPPED: Tier.DROPPED,
}
"""What an outcome counts as."""

_LOG_APPEND_TIME: Final = 2
"""The first field of Message.timestamp() where it is the broker's."""


WriteRows = Callable[[Sequence[Mapping[str, Any]]], object]
"""Writes counts down at once, each given by its own fields, see ``Journal.write``."""


@frozen
class AuditRules:
    """What is counted, and how."""

    bucket_ms: int = 60_000
    ids: bool = False
    """Checksums of the records' ids are kept."""


@frozen(eq=False)
class _Tenure:
    """One assignment of one partition, as the audit sees it."""

    epoch_ms: int
    pending: Pending
    skew: SkewWatch


class ConsumerAudit(Observer):
    """Counts for one worker. Owner: poll thread."""

    def __init__(
        self, group: str, rules: AuditRules, write: WriteRows, wall_ms: Callable[[], float]
    ):
        self._group = group
        self._rules = rules
        self._write_rows = write
        self._wall_ms = wall_ms
        self._tenures: dict[Partition, _Tenure] = {}
        self._epoch_ms = 0

    def assigned(self, partition: Partition, now: float) -> None:
        """Begin to count a partition."""
        # Two assignments of one worker never have the same number, however coarse the clock is.
        self._epoch_ms = max(int(self._wall_ms()), self._epoch_ms + 1)
        pending = Pending(partition.finished_ranges(), self._rules.bucket_ms)
        self._tenures[partition] = _Tenure(self._epoch_ms, pending, SkewWatch(now))

    def given_up(self, partition: Partition, now: float) -> None:  # noqa: ARG002 - as declared
        """Forget what no commit has covered: it runs again."""
        self._tenures.pop(partition, None)

    def taken(self, partition: Partition, messages: Sequence[Message], now: float) -> None:
        """Look at what the clocks say."""
        tenure = self._tenures.get(partition)
        if tenure is not None and not partition.rung.is_copy:
            tenure.skew.look(partition.log_end, messages[-1], now, int(self._wall_ms()))

    def finished(
        self,
        partition: Partition,
        messages: Sequence[Message],
        outcome: Outcome,
        slice_: Slice | None,
        now: float,  # noqa: ARG002 - as declared
    ) -> None:
        """Count records whose handler returned."""
        tenure = self._tenures.get(partition)
        if tenure is None or not messages:
            return
        offsets: Sequence[int]
        in_order = slice_ is not None and slice_.messages is messages
        if in_order and slice_ is not None and type(slice_.seqs) is range:
            offsets = _dense(messages)
        else:
            offsets = list(map(_offset_of(messages), messages))
        self._add(tenure, partition, TIERS[outcome], offsets, messages)

    def left(self, failed: FailedRecord, outcome: Outcome, now: float) -> None:  # noqa: ARG002 - as declared
        """Count a record that has left the ladder, or has climbed it."""
        tenure = self._tenures.get(failed.partition)
        if tenure is not None:
            message = failed.message
            offset = message.offset()
            offsets = range(offset, after(offset))
            self._add(tenure, failed.partition, TIERS[outcome], offsets, (message,))

    def committing(self, partition: Partition, commit: Commit, now: float) -> None:  # noqa: ARG002 - as declared
        """Write down what the commit covers for the first time."""
        tenure = self._tenures.get(partition)
        if tenure is None:
            return
        if partition.commit.tight:
            # Not everything may have had room: what the commit says is what it covers.
            note = decode(commit.metadata)
            finished = () if note is None else note.finished
        else:
            finished = tuple(partition.finished_ranges())
        stretches = tenure.pending.cover(commit.next_offset, finished)
        if stretches:
            self._write(partition, tenure, stretches)

    def _add(
        self,
        tenure: _Tenure,
        partition: Partition,
        tier: Tier,
        offsets: Sequence[int],
        messages: Sequence[Message],
    ) -> None:
        times_ms, stamps = _timestamps(messages, is_copy=partition.rung.is_copy)
        columns = Columns(
            times_ms,
            list(map(len, messages)),
            self._hashes(partition, messages) if self._rules.ids else None,
            int(self._wall_ms()),
            tenure.skew.is_skewed,
            stamps,
        )
        tenure.pending.add(tier, offsets, columns, partition.window.next_offset)

    def _hashes(self, partition: Partition, messages: Sequence[Message]) -> list[int]:
        if partition.rung.is_copy:
            return [id_hash(of_copy(message).record_id) for message in messages]
        return [id_hash(_own_id(message, partition.name)) for message in messages]

    def _write(self, partition: Partition, tenure: _Tenure, stretches: Sequence[Stretch]) -> None:
        name, rung = partition.name, partition.rung
        ids = self._rules.ids
        self._write_rows(
            [
                {
                    "tier": tier,
                    "group": self._group,
                    "topic": name.topic,
                    "partition": name.partition,
                    "topic_hash": partition.commit.topic_hash,
                    "origin": "" if rung.source == name.topic else rung.source,
                    "bucket_ms": bucket_ms,
                    "length_ms": self._rules.bucket_ms,
                    "epoch_ms": tenure.epoch_ms,
                    "offsets": stretch.offsets,
                    **sums.as_fields(ids=ids),
                }
                for stretch in stretches
                for (tier, bucket_ms), sums in stretch.sums.items()
            ]
        )


def _own_id(message: Message, name: TopicPartition) -> bytes:
    """Return a record's id, as ``hop.of_source`` does for half the cost."""
    for header, value in message.headers() or ():
        if header == names.ID and value:
            found: bytes = value
            return found
    return b"%s/%d/%d" % (name.topic.encode(), name.partition, message.offset())


def _dense(messages: Sequence[Message]) -> Sequence[int]:
    """Return the offsets of records that were delivered one after another."""
    first, last = messages[0].offset(), messages[-1].offset()
    offsets = range(first, after(last))
    return offsets if len(offsets) == len(messages) else list(map(_offset_of(messages), messages))


def _offset_of(messages: Sequence[Message]) -> Callable[[Message], int]:
    """Return what tells the offset of each of them: a third of the cost of a method's look-up."""
    offset_of: Callable[[Message], int] = type(messages[0]).offset
    return offset_of


def _timestamps(
    messages: Sequence[Message], *, is_copy: bool
) -> tuple[Sequence[int], Sequence[Timestamp] | None]:
    """Return the producers' timestamps; all that there are where some are not producers'.

    Those of copies are the ones of the first delivery.
    """
    if is_copy:
        hops = map(of_copy, messages)
        stamps = [NO_TIMESTAMP if h.timestamp is None else (CREATE_TIME, h.timestamp) for h in hops]
        return (), stamps
    timestamp = type(messages[0]).timestamp
    # One pass, in which each pair is gone before the next one is made: 50 ns less a record.
    times_ms = [ms for kind, ms in map(timestamp, messages) if kind == CREATE_TIME]
    if len(times_ms) == len(messages):
        return times_ms, None
    return (), [_sent_at(each, timestamp(each)) for each in messages]


def _sent_at(message: Message, stamp: Timestamp) -> Timestamp:
    """Return when the producer says that it sent a record; the broker's time where it does not."""
    if stamp[0] != _LOG_APPEND_TIME:
        return stamp
    for name, value in message.headers() or ():
        if name == names.SENT_AT and value is not None and value.isdigit() and len(value) < 19:
            return CREATE_TIME, int(value)
    return stamp
