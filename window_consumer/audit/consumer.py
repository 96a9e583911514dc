"""Counts the outcomes of a worker's records. Listens to its Engine, and writes before it commits.

Counting happens on the poll thread, by the slice, or by the hundred if slices are short. A commit's
counts must be in the log before the commit is sent.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final
from weakref import WeakKeyDictionary

from attrs import frozen

from window_consumer.audit.count import CountTier
from window_consumer.audit.pending import BucketStretch, PendingCounts
from window_consumer.audit.sums import (
    CREATE_TIME,
    MOST_RECORDS,
    NO_TIMESTAMP,
    SHORT_RECORDS,
    Columns,
    Gathered,
    SkewWatch,
    Timestamp,
    id_hashes,
)
from window_consumer.engine.commits.commit_metadata import decode
from window_consumer.engine.commits.lost_partitions import PartitionOutcomes
from window_consumer.engine.observer import Observer
from window_consumer.engine.offsets import after
from window_consumer.engine.partition import Partition
from window_consumer.engine.retry.failed_record import FailedRecord
from window_consumer.engine.scheduling.slices import Slice
from window_consumer.model import headers as names
from window_consumer.model.copy_headers import Hop, of_copy
from window_consumer.model.outcome import OUTCOMES, Outcome
from window_consumer.model.protocols import Commit
from window_consumer.model.record import Message, TopicPartition
from window_consumer.model.record_identity import given_id

TIERS: Final = {row: CountTier(row.tier) for row in OUTCOMES if row.tier}
"""The tier that counts each outcome."""

_LOG_APPEND_TIME: Final = 2
"""The first field of Message.timestamp() where the broker set the time."""


WriteRows = Callable[[Sequence[Mapping[str, Any]]], object]
"""Writes counts together, each given by its fields, see ``CountJournal.write``."""


@frozen
class AuditRules:
    """How records are counted."""

    bucket_ms: int = 60_000
    ids: bool = False
    """Keep checksums of the records' ids."""
    most_gathered: int = MOST_RECORDS
    """How many records of short slices are counted together at most."""


@frozen(eq=False)
class _Tenure:
    """One assignment of one partition, as the audit sees it."""

    epoch_ms: int
    pending: PendingCounts
    skew: SkewWatch
    gathered: Gathered
    """Records of short slices that are not in ``pending`` yet."""


class ConsumerAudit(Observer):
    """Counts for one worker. Owner: poll thread."""

    def __init__(
        self,
        group: str,
        rules: AuditRules,
        write: WriteRows,
        wall_ms: Callable[[], float],
        make_pending: Callable[[Iterable[range], int], PendingCounts] = PendingCounts,
    ):
        self._group = group
        self._rules = rules
        self._write_rows = write
        self._wall_ms = wall_ms
        self._make_pending = make_pending
        self._tenures: dict[Partition, _Tenure] = {}
        self._kept: WeakKeyDictionary[PartitionOutcomes, PendingCounts] = WeakKeyDictionary()
        """Counts of lost partitions that may come back, kept as long as their outcomes are."""
        self._epoch_ms = 0

    def assigned(self, partition: Partition, now: float) -> None:
        """Begin to count a partition."""
        # A worker's assignments get distinct numbers, however coarse the clock is.
        self._epoch_ms = max(int(self._wall_ms()), self._epoch_ms + 1)
        recalled = partition.recalled
        pending = None if recalled is None else self._kept.pop(recalled, None)
        if pending is None:
            pending = self._make_pending(partition.finished_ranges(), self._rules.bucket_ms)
        gathered = Gathered(most_records=self._rules.most_gathered)
        self._tenures[partition] = _Tenure(self._epoch_ms, pending, SkewWatch(now), gathered)

    def given_up(self, partition: Partition, now: float) -> None:  # noqa: ARG002 - as declared
        """Drop records that no commit covers: they run again, unless their outcomes are kept."""
        tenure = self._tenures.pop(partition, None)
        if tenure is not None and partition.kept is not None:
            self._add_gathered(tenure, partition)
            self._kept[partition.kept] = tenure.pending

    def taken(self, partition: Partition, messages: Sequence[Message], now: float) -> None:
        """Check the clocks for skew."""
        tenure = self._tenures.get(partition)
        if tenure is not None and not partition.retry_level.is_copy:
            tenure.skew.check(partition.log_end, messages[-1], now, int(self._wall_ms()))

    def gone(self, partition: Partition, offsets: Sequence[range], now: float) -> None:  # noqa: ARG002 - as declared
        """Count offsets that nobody will read, again each time they are noticed."""
        tenure = self._tenures.get(partition)
        if tenure is None:
            return
        length_ms = self._rules.bucket_ms
        about = {
            **self._about(partition, tenure),
            "tier": CountTier.GONE,
            "bucket_ms": int(self._wall_ms()) // length_ms * length_ms,
        }
        self._write_rows(
            [{**about, "offsets": ((o.start, o.stop),), "count": len(o)} for o in offsets]
        )

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
        tier = TIERS[outcome]
        if len(messages) < SHORT_RECORDS:
            self._gather(tenure, partition, tier, messages)
            return
        offsets: Sequence[int]
        in_order = slice_ is not None and slice_.messages is messages
        if in_order and slice_ is not None and type(slice_.seqs) is range:
            offsets = _dense(messages)
        else:
            offsets = list(map(_offset_of(messages), messages))
        skew, wall_ms = tenure.skew.is_skewed, int(self._wall_ms())
        self._add(tenure, partition, tier, offsets, messages, wall_ms, skew=skew)

    def left(self, failed: FailedRecord, outcome: Outcome, now: float) -> None:  # noqa: ARG002 - as declared
        """Count a record that left the ladder or moved up a level."""
        tenure = self._tenures.get(failed.partition)
        if tenure is not None:
            self._gather(tenure, failed.partition, TIERS[outcome], (failed.message,))

    def committing(self, partition: Partition, commit: Commit, now: float) -> None:  # noqa: ARG002 - as declared
        """Write the counts that this commit is the first to cover."""
        tenure = self._tenures.get(partition)
        if tenure is None:
            return
        self._add_gathered(tenure, partition)
        if partition.commit.tight:
            # The metadata may lack room for all ranges, so the commit covers only what it carries.
            note = decode(commit.metadata)
            finished = () if note is None else note.finished
        else:
            finished = tuple(partition.finished_ranges())
        stretches = tenure.pending.cover(commit.next_offset, finished)
        if stretches:
            self._write(partition, tenure, stretches)

    def _gather(
        self, tenure: _Tenure, partition: Partition, tier: CountTier, messages: Sequence[Message]
    ) -> None:
        """Keep records for later, because the cost of a count is mostly per slice."""
        gathered = tenure.gathered
        skew = tenure.skew.is_skewed
        if gathered.tier is not tier or gathered.skew is not skew:
            self._add_gathered(tenure, partition)
            gathered.tier, gathered.skew = tier, skew
        if gathered.take(messages, self._wall_ms()):
            self._add_gathered(tenure, partition)

    def _add_gathered(self, tenure: _Tenure, partition: Partition) -> None:
        gathered = tenure.gathered
        if gathered.messages:
            messages, walls_ms = gathered.all()
            offsets = list(map(_offset_of(messages), messages))
            self._add(
                tenure, partition, gathered.tier, offsets, messages, walls_ms, skew=gathered.skew
            )

    def _add(  # noqa: PLR0913 - the records, their place and their outcome
        self,
        tenure: _Tenure,
        partition: Partition,
        tier: CountTier,
        offsets: Sequence[int],
        messages: Sequence[Message],
        wall_ms: int | Sequence[int],
        *,
        skew: bool,
    ) -> None:
        hops = list(map(of_copy, messages)) if partition.retry_level.is_copy else None
        times_ms, stamps = _timestamps(messages, hops)
        hashes = _hashes(messages, hops, partition.name, offsets) if self._rules.ids else None
        columns = Columns(times_ms, list(map(len, messages)), hashes, wall_ms, skew, stamps)
        tenure.pending.add(tier, offsets, columns, partition.window.next_offset)

    def _write(
        self, partition: Partition, tenure: _Tenure, stretches: Sequence[BucketStretch]
    ) -> None:
        about, ids = self._about(partition, tenure), self._rules.ids
        self._write_rows(
            [
                {
                    **about,
                    "tier": tier,
                    "bucket_ms": bucket_ms,
                    "offsets": stretch.offsets,
                    **sums.as_fields(ids=ids),
                }
                for stretch in stretches
                for (tier, bucket_ms), sums in stretch.sums.items()
            ]
        )

    def _about(self, partition: Partition, tenure: _Tenure) -> dict[str, Any]:
        """Return the fields that all counts of a partition share."""
        name, retry_level = partition.name, partition.retry_level
        return {
            "group": self._group,
            "topic": name.topic,
            "partition": name.partition,
            "topic_hash": partition.commit.topic_hash,
            "origin": "" if retry_level.source == name.topic else retry_level.source,
            "length_ms": self._rules.bucket_ms,
            "epoch_ms": tenure.epoch_ms,
        }


def _hashes(
    messages: Sequence[Message],
    hops: Sequence[Hop] | None,
    name: TopicPartition,
    offsets: Sequence[int],
) -> list[int]:
    """Return the hashes of the records' ids, as ``hop.of_source`` has them, at half the cost."""
    if hops is not None:
        return id_hashes(each.record_id for each in hops)
    given = list(map(type(messages[0]).headers, messages))
    place = b"%s/%d/" % (name.topic.encode(), name.partition)
    if not any(given):
        return id_hashes([b"%s%d" % (place, offset) for offset in offsets])
    return id_hashes(
        given_id(headers) or b"%s%d" % (place, offset)
        for headers, offset in zip(given, offsets, strict=True)
    )


def _dense(messages: Sequence[Message]) -> Sequence[int]:
    """Return the offsets of records that were delivered one after another."""
    first, last = messages[0].offset(), messages[-1].offset()
    offsets = range(first, after(last))
    return offsets if len(offsets) == len(messages) else list(map(_offset_of(messages), messages))


def _offset_of(messages: Sequence[Message]) -> Callable[[Message], int]:
    """Return the unbound ``offset``: a third of the cost of looking up the method each time."""
    offset_of: Callable[[Message], int] = type(messages[0]).offset
    return offset_of


def _timestamps(
    messages: Sequence[Message], hops: Sequence[Hop] | None
) -> tuple[Sequence[int], Sequence[Timestamp] | None]:
    """Return the producers' timestamps, or all kinds if some are not the producers'.

    Copies have the timestamps of the first delivery, from their hops.
    """
    if hops is not None:
        stamps = [NO_TIMESTAMP if h.timestamp is None else (CREATE_TIME, h.timestamp) for h in hops]
        return (), stamps
    timestamp = type(messages[0]).timestamp
    # One pass that frees each pair before it makes the next: 50 ns less per record.
    times_ms = [ms for kind, ms in map(timestamp, messages) if kind == CREATE_TIME]
    if len(times_ms) == len(messages):
        return times_ms, None
    return (), [_sent_at(each, timestamp(each)) for each in messages]


def _sent_at(message: Message, stamp: Timestamp) -> Timestamp:
    """Return the producer's timestamp of a record; else the broker's."""
    if stamp[0] != _LOG_APPEND_TIME:
        return stamp
    for name, value in message.headers() or ():
        if name == names.SENT_AT and value is not None and value.isdigit() and len(value) < 19:
            return CREATE_TIME, int(value)
    return stamp
