"""Adding counts of an audit up: what counts once, what was replaced, and whether it balances.

Pure arithmetic on ``AuditCount``, in any order of the counts, those sent twice included.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from enum import StrEnum

from attrs import define, field, frozen

from window_consumer.audit.count import (
    WRITTEN,
    AuditCount,
    CountTier,
    signed64,
)
from window_consumer.model.offset_ranges import (
    Ranges,
    overlap,
    united,
    without,
)

Place = tuple[str, str, int]
"""A group, and a topic's partition."""


@frozen
class Effective:
    """What counts of all that was counted."""

    counts: tuple[AuditCount, ...]
    """Each of them once, in the order of their audit ids."""
    replaced: tuple[AuditCount, ...]
    """Those whose records ran again, in a later epoch."""
    open: Mapping[Place, Ranges]
    """Offsets whose count was replaced and that have not been counted again (yet): their records
    run again just now. Or somebody moved the group's offset into the middle of what was counted
    together."""


def effective(counts: Iterable[AuditCount]) -> Effective:
    """Return what counts: each count once, and of each offset the count of the latest epoch."""
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
        # A topic that was made anew has the old one's offsets; who could not ask for its id, and
        # counted as 0, may mean either.
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
    """Return who was replaced of one partition's counts, and the offsets that miss a count now."""
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
    """Counts added up. Owner: whoever adds."""

    count: int = 0
    bytes: int = 0
    without_timestamp: int = 0
    skewed: int = 0
    id_xor: int = 0
    id_sum: int = 0
    has_ids: bool = True
    """Checksums were kept of all of them."""
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
        """Tell whether these are other records than those; None where ids were not read."""
        if not (self.has_ids and other.has_ids):
            return None
        return self.checksums != other.checksums


class BalanceVerdict(StrEnum):
    """What the balance of a topic says, for one group and bucket."""

    BALANCED = "balanced"
    WITHIN_UNKNOWN = "within unknown"
    """The difference is explained by sends of which nobody knows whether they were written."""
    WITHIN_GONE = "within gone"
    """Less has left the topic than came into it, by no more than what the group could not read,
    because the log had lost it."""
    IN_PROGRESS = "in progress"
    """Less has left the topic than came into it; no more can be said while it is consumed."""
    TOO_MANY = "too many"
    """More has left the topic than came into it: some records were counted twice."""
    EXCHANGED = "exchanged"
    """As many, but others: a loss and a duplicate that cancel out."""
    UNAUDITED = "unaudited"
    """Nobody has counted what was written to the topic: nothing can be said."""


@frozen
class Balance:
    """What came into a topic and what left it, of the records of one bucket, for one group."""

    topic: str
    group: str
    bucket_ms: int
    tiers: Mapping[CountTier, Sum]
    gone: int = 0
    """At most so many of the topic were gone before the group read them. It was noticed in this
    bucket or later, so some of them may be of this one; each bucket has all of them."""

    @property
    def came(self) -> int:
        """How many came into the topic for certain."""
        return sum(each.count for tier, each in self.tiers.items() if tier in WRITTEN)

    @property
    def unknown(self) -> int:
        """Of how many sends nobody knows."""
        return self.tiers[CountTier.UNKNOWN].count if CountTier.UNKNOWN in self.tiers else 0

    @property
    def left(self) -> int:
        """How many have left the topic."""
        return sum(
            each.count
            for tier, each in self.tiers.items()
            if tier not in WRITTEN and tier is not CountTier.UNKNOWN
        )

    @property
    def verdict(self) -> BalanceVerdict:
        """What this says, one of ``Verdict``."""
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
    """Return what came into each topic and what left it, by group and bucket.

    A topic is everything that was written to: a retry topic balances for itself, too. ``counts``
    are to be those that count, see ``effective``. Without a group nobody has consumed the topic.
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
