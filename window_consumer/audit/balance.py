"""Adds up audit counts: drops repeats, finds replaced counts, and judges the balance.

Pure arithmetic on ``AuditCount``. Counts may come in any order and more than once.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from enum import StrEnum

from attrs import define, field, frozen

from window_consumer.audit.count import WRITTEN, AuditCount, CountTier, signed64
from window_consumer.model.offset_ranges import Ranges, overlap, united, without

Place = tuple[str, str, int]
"""A group, and a topic's partition."""


@frozen
class Effective:
    """The counts that are valid, and those that were replaced."""

    counts: tuple[AuditCount, ...]
    """Each valid count once, in the order of the audit ids."""
    replaced: tuple[AuditCount, ...]
    """Counts whose records ran again in a later epoch."""
    open: Mapping[Place, Ranges]
    """Offsets whose count was replaced and that have not been counted again.

    Their records are running again, or somebody moved the group's offset into the middle of offsets
    that were counted together.
    """


def effective(counts: Iterable[AuditCount]) -> Effective:
    """Return the valid counts: each once, and for each offset the latest epoch's."""
    once = {count.audit_id: count for count in counts}
    ordered = [once[audit_id] for audit_id in sorted(once)]
    places: defaultdict[Place, list[AuditCount]] = defaultdict(list)
    for count in ordered:
        if count.offsets:
            places[count.group, count.topic, count.partition].append(count)
    replaced: set[tuple[str, str, int]] = set()
    unfinished: dict[Place, Ranges] = {}
    for place, theirs in places.items():
        again: Ranges = ()
        # A recreated topic reuses the old one's offsets. A hash of 0 (the id could not be read) may
        # mean either topic.
        for topic_hash in {each.topic_hash for each in theirs} - {0} or {0}:
            gone, rest = _replaced([c for c in theirs if c.topic_hash in {topic_hash, 0}])
            replaced.update(gone)
            again = united([*again, *rest])
        if again:
            unfinished[place] = again
    return Effective(
        tuple(each for each in ordered if each.audit_id not in replaced),
        tuple(each for each in ordered if each.audit_id in replaced),
        unfinished,
    )


def _replaced(counts: Sequence[AuditCount]) -> tuple[set[tuple[str, str, int]], Ranges]:
    """Return the ids of one partition's replaced counts, and the offsets left without a count."""
    epochs: defaultdict[tuple[int, str, str], list[AuditCount]] = defaultdict(list)
    for count in counts:
        epochs[count.epoch_ms, count.client, count.incarnation].append(count)
    later: Ranges = ()
    kept: Ranges = ()
    gone: set[tuple[str, str, int]] = set()
    for epoch in sorted(epochs, reverse=True):
        theirs = epochs[epoch]
        for count in theirs:
            if overlap(count.offsets, later):
                gone.add(count.audit_id)
        own = united(each for count in theirs for each in count.offsets)
        stay = (each for c in theirs if c.audit_id not in gone for each in c.offsets)
        kept = united([*kept, *stay])
        later = united([*later, *own])
    return gone, without(later, kept)


@define
class Sum:
    """A sum of counts. Owner: its creator."""

    count: int = 0
    bytes: int = 0
    without_timestamp: int = 0
    skewed: int = 0
    id_xor: int = 0
    id_sum: int = 0
    has_ids: bool = True
    """All counts had checksums."""
    latency: Counter[int] = field(factory=Counter)

    def add(self, count: AuditCount) -> None:
        """Add a count."""
        self.count += count.count
        self.bytes += count.bytes
        self.without_timestamp += count.without_timestamp
        self.skewed += count.skewed
        self.latency.update(count.latency)
        if count.id_xor is None or count.id_sum is None:
            self.has_ids = self.has_ids and not count.count
        else:
            self.id_xor = signed64(self.id_xor ^ count.id_xor)
            self.id_sum = signed64(self.id_sum + count.id_sum)

    @property
    def checksums(self) -> tuple[int, int]:
        """The two checksums of the records' ids."""
        return self.id_xor, self.id_sum

    def differs(self, other: Sum) -> bool | None:
        """Return whether the records differ; None if ids were not read."""
        if not (self.has_ids and other.has_ids):
            return None
        return self.checksums != other.checksums


class BalanceVerdict(StrEnum):
    """The verdict on a topic's balance, for one group and bucket."""

    BALANCED = "balanced"
    WITHIN_UNKNOWN = "within unknown"
    """Sends with an unknown result explain the difference."""
    WITHIN_GONE = "within gone"
    """Fewer records left than came; the log had lost at least that many before the group read."""
    IN_PROGRESS = "in progress"
    """Fewer records left the topic than came. Nothing else is certain while the group consumes."""
    TOO_MANY = "too many"
    """More records left the topic than came: some were counted twice."""
    EXCHANGED = "exchanged"
    """The numbers match but the records differ: a loss and a duplicate cancel out."""
    UNAUDITED = "unaudited"
    """Nobody counted the records written to the topic, so no verdict is possible."""


@frozen
class Balance:
    """The records of one bucket that came into a topic and left it, for one group."""

    topic: str
    group: str
    bucket_ms: int
    tiers: Mapping[CountTier, Sum]
    gone: int = 0
    """The most records that the log lost before the group read them.

    The loss was noticed in this bucket or a later one, so some of the records may belong to this
    bucket. Each bucket gets the whole number.
    """

    @property
    def came(self) -> int:
        """How many records certainly came into the topic."""
        return sum(each.count for tier, each in self.tiers.items() if tier in WRITTEN)

    @property
    def unknown(self) -> int:
        """How many sends have an unknown result."""
        return self.tiers[CountTier.UNKNOWN].count if CountTier.UNKNOWN in self.tiers else 0

    @property
    def left(self) -> int:
        """How many records left the topic."""
        return sum(
            each.count
            for tier, each in self.tiers.items()
            if tier not in WRITTEN and tier is not CountTier.UNKNOWN
        )

    @property
    def verdict(self) -> BalanceVerdict:
        """The verdict on these sums."""
        if not (self.came or self.unknown):
            return BalanceVerdict.UNAUDITED
        if self.left > self.came + self.unknown:
            return BalanceVerdict.TOO_MANY
        if self.left < self.came:
            explained = self.left + self.gone >= self.came
            return BalanceVerdict.WITHIN_GONE if explained else BalanceVerdict.IN_PROGRESS
        if self.left == self.came and not self.unknown:
            return BalanceVerdict.EXCHANGED if self._differs() else BalanceVerdict.BALANCED
        return BalanceVerdict.WITHIN_UNKNOWN

    def _differs(self) -> bool:
        came, left = Sum(), Sum()
        for tier, each in self.tiers.items():
            into = came if tier in WRITTEN else left
            into.id_xor = signed64(into.id_xor ^ each.id_xor)
            into.id_sum = signed64(into.id_sum + each.id_sum)
            into.has_ids = into.has_ids and each.has_ids
        return came.differs(left) is True


def balance(counts: Iterable[AuditCount]) -> list[Balance]:
    """Return the records that came into each topic and left it, by group and bucket.

    Each topic that was written to has its own balance, retry topics included. ``counts`` are the
    valid ones (see ``effective``). An empty group means that nobody consumed the topic.
    """
    written: defaultdict[tuple[str, int], list[AuditCount]] = defaultdict(list)
    consumed: defaultdict[tuple[str, int, str], list[AuditCount]] = defaultdict(list)
    groups: defaultdict[str, set[str]] = defaultdict(set)
    gone: defaultdict[tuple[str, str], list[AuditCount]] = defaultdict(list)
    for count in counts:
        if count.tier is CountTier.GONE:
            gone[count.topic, count.group].append(count)
            groups[count.topic].add(count.group)
        elif count.tier in WRITTEN or count.tier is CountTier.UNKNOWN:
            written[count.topic, count.bucket_ms].append(count)
        else:
            consumed[count.topic, count.bucket_ms, count.group].append(count)
            groups[count.topic].add(count.group)
    keys = set(consumed)
    for topic, bucket in written:
        keys.update((topic, bucket, group) for group in groups[topic] or {""})
    found = []
    for topic, bucket, group in sorted(keys):
        tiers: defaultdict[CountTier, Sum] = defaultdict(Sum)
        for count in (*written[topic, bucket], *consumed[topic, bucket, group]):
            tiers[count.tier].add(count)
        tiers = defaultdict(Sum, {t: s for t, s in tiers.items() if s.count})
        if tiers:
            missed = sum(each.count for each in gone[topic, group] if each.bucket_ms >= bucket)
            found.append(Balance(topic, group, bucket, dict(tiers), missed))
    return found
