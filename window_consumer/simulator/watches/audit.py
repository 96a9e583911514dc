"""Watches the audit: its counts must match the fates of the records.

Counts outlive the members, like a real audit's files. They are compared with the outcome of each
record, and with the commits sent.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from functools import reduce
from operator import xor
from typing import Any
from weakref import WeakKeyDictionary

from attrs import define, field

from window_consumer.audit.balance import Sum, effective
from window_consumer.audit.consumer import TIERS, AuditRules
from window_consumer.audit.count import AuditCount, CountTier, signed64
from window_consumer.audit.sums import id_hash
from window_consumer.engine.commits.commit_metadata import decode
from window_consumer.engine.commits.lost_partitions import PartitionOutcomes
from window_consumer.engine.observer import Observer
from window_consumer.engine.partition import Partition
from window_consumer.engine.retry.failed_record import FailedRecord
from window_consumer.engine.scheduling.slices import Slice
from window_consumer.model.copy_headers import of_copy, of_source
from window_consumer.model.outcome import Outcome
from window_consumer.model.protocols import Commit
from window_consumer.model.record import Message, TopicPartition
from window_consumer.simulator.history import SimulationHistory
from window_consumer.simulator.log_history import Member
from window_consumer.simulator.schedule import GROUP
from window_consumer.simulator.system_under_test import MakeAudit


@define(frozen=True)
class _Fate:
    """The fate of a record, as an audit must count it."""

    tier: CountTier
    size: int
    hash: int


@define(eq=False)
class _Notes:
    """The fates of the records of one assignment."""

    place: TopicPartition
    number: int
    """Later assignments have higher numbers, whichever member has them."""
    fates: dict[int, _Fate] = field(factory=dict)


class AuditWitness(Observer):
    """Receives the outcome of each record. Owner: one thread."""

    def __init__(self, watch: AuditWatch):
        self._watch = watch
        self._notes: dict[Partition, _Notes] = {}
        self._kept: WeakKeyDictionary[PartitionOutcomes, _Notes] = WeakKeyDictionary()

    def assigned(self, partition: Partition, now: float) -> None:  # noqa: ARG002 - as declared
        """Begin an assignment."""
        recalled = partition.recalled
        notes = None if recalled is None else self._kept.get(recalled)
        fates = {} if notes is None else notes.fates
        self._notes[partition] = _Notes(partition.name, self._watch.next_number(), fates)

    def given_up(self, partition: Partition, now: float) -> None:  # noqa: ARG002 - as declared
        """Keep the finished records of a lost partition: they may still count."""
        if partition.kept is not None:
            self._kept[partition.kept] = self._notes[partition]

    def finished(
        self,
        partition: Partition,
        messages: Sequence[Message],
        outcome: Outcome,
        slice_: Slice | None,  # noqa: ARG002 - as declared
        now: float,  # noqa: ARG002 - as declared
    ) -> None:
        """Record finished records."""
        for message in messages:
            self._record(partition, message, outcome)

    def left(self, failed: FailedRecord, outcome: Outcome, now: float) -> None:  # noqa: ARG002 - as declared
        """Record that a record has left."""
        self._record(failed.partition, failed.message, outcome)

    def committing(self, partition: Partition, commit: Commit, now: float) -> None:  # noqa: ARG002 - as declared
        """Record the records that a commit covers."""
        notes = self._notes[partition]
        note = decode(commit.metadata)
        for offset in list(notes.fates):
            if offset < commit.next_offset or (
                note is not None and any(offset in each for each in note.finished)
            ):
                self._watch.covered(notes.place, offset, notes.number, notes.fates.pop(offset))

    def _record(self, partition: Partition, message: Message, outcome: Outcome) -> None:
        hop = of_copy(message) if partition.retry_level.is_copy else of_source(message)
        fate = _Fate(TIERS[outcome], len(message), id_hash(hop.record_id))
        self._notes[partition].fates[message.offset()] = fate


class AuditWatch:
    """Checks the counts of all members at the end. Owner: one thread."""

    def __init__(self, history: SimulationHistory):
        self._history = history
        self.counts: list[AuditCount] = []
        self.fates: defaultdict[TopicPartition, dict[int, _Fate]] = defaultdict(dict)
        """By offset: the fate covered by a commit of the latest assignment with one."""
        self.tampered: set[str] = set()
        """Topics with an offset moved by hand, or with reused offsets."""
        self._born = 0
        self._numbers = 0
        self._covered_by: dict[tuple[TopicPartition, int], int] = {}
        """The assignment that each fate comes from."""

    def next_number(self) -> int:
        """Return the number of an assignment that begins."""
        self._numbers += 1
        return self._numbers

    def covered(self, place: TopicPartition, offset: int, number: int, fate: _Fate) -> None:
        """Take a record's fate in one assignment, once a commit covers it.

        A member that is evicted while it waits for its calls sends its last commit after its
        successor's first. That commit is refused, so it must not replace the fate.
        """
        if number >= self._covered_by.get((place, offset), 0):
            self._covered_by[place, offset] = number
            self.fates[place][offset] = fate

    def listeners(self, member: Member, make_audit: MakeAudit) -> Sequence[Observer]:
        """Return a member's observers."""
        self._born += 1
        identity: dict[str, Any] = {
            "client": str(member),
            "incarnation": f"{self._born:06d}",
            "app": "simulated",
            "instance": str(member),
        }

        def write(rows: Sequence[Mapping[str, Any]]) -> None:
            first = len(self.counts) + 1
            self.counts += [
                AuditCount(**identity, sequence=first + index, **row)
                for index, row in enumerate(rows)
            ]

        rules = AuditRules(ids=True)
        audit = make_audit(GROUP, rules, write, self._history.wall_ms)
        return (AuditWitness(self), audit)

    def check(self) -> None:
        """Compare the counts with the records' fates."""
        found = effective(self.counts)
        sums: defaultdict[tuple[TopicPartition, CountTier], Sum] = defaultdict(Sum)
        for count in found.counts:
            sums[TopicPartition(count.topic, count.partition), count.tier].add(count)
        unsettled: defaultdict[TopicPartition, list[range]] = defaultdict(list)
        for (_, topic, partition), ranges in found.open.items():
            unsettled[TopicPartition(topic, partition)] = [range(*each) for each in ranges]
        for place, fates in self.fates.items():
            if place.topic not in self.tampered:
                self._check(place, fates, unsettled[place], sums)
        for count in found.counts:
            if count.tier is CountTier.GONE and count.topic not in self.tampered:
                self._check_gone(count)

    def _check_gone(self, count: AuditCount) -> None:
        """Check that only excused records are counted as gone."""
        place = TopicPartition(count.topic, count.partition)
        log = self._history.broker.topics.log(place)
        if log is None:
            return
        records = self._history.ledger(log).records
        for offset in (o for start, stop in count.offsets for o in range(start, stop)):
            if offset in records and not records[offset].excused:
                self._history.violate(
                    f"audit: {place}@{offset} is counted as gone but is still there"
                )

    def _check(
        self,
        place: TopicPartition,
        fates: Mapping[int, _Fate],
        unsettled: Sequence[range],
        sums: Mapping[tuple[TopicPartition, CountTier], Sum],
    ) -> None:
        gone = self._gone(place)
        for offset in fates:
            if any(offset in each for each in unsettled) and offset not in gone:
                self._history.violate(f"audit: {place}@{offset} is counted by nobody")
        for tier in TIERS.values():
            certain = [f for o, f in fates.items() if f.tier is tier and o not in gone]
            perhaps = sum(fate.tier is tier for o, fate in fates.items() if o in gone)
            counted = sums.get((place, tier), Sum())
            what = f"audit: {place}: {counted.count} {tier} counted"
            if not len(certain) <= counted.count <= len(certain) + perhaps:
                self._history.violate(f"{what}, but there were {len(certain)} (and {perhaps} gone)")
            elif not perhaps:
                size = sum(fate.size for fate in certain)
                hashes = [fate.hash for fate in certain]
                checksums = signed64(reduce(xor, hashes, 0)), signed64(sum(hashes))
                if (counted.bytes, counted.checksums) != (size, checksums):
                    self._history.violate(f"{what}, but not the right ones")

    def _gone(self, place: TopicPartition) -> set[int]:
        """Return the offsets that the log has lost: a second run may never have received them."""
        log = self._history.broker.topics.log(place)
        if log is None:
            return set()
        return {o for o, r in self._history.ledger(log).records.items() if r.excused}
