"""Rates: how many calls may start per time.

This module has the token buckets for a worker, a key or a partition; ``shares/class_rate_limit``
has those for a class.

The promise: in any span of ``t`` seconds at most ``burst + per_s * t`` calls start (of the worker,
of one key, of one partition). A call starts when a slot takes its record: with its slice, or after
the record before it.

A record is charged when it is dispatched, and may then wait for a slot. Records that have waited
must not start in one moment with later ones. So a bucket fills only until its tokens plus the
charged records that no slot has taken equal the burst. Retries and copies are charged like any
call.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from math import inf
from typing import TYPE_CHECKING, Literal

from attrs import frozen

from window_consumer.model.record import Message

if TYPE_CHECKING:
    from window_consumer.engine.partition import Partition
    from window_consumer.engine.scheduling.slices import Slice

Per = Literal["worker", "key", "partition", "class"]

FORGET_AT = 1000
"""Above this many buckets, full ones are removed whenever the number has doubled."""

_ROUNDED = 1e-9
"""A token still counts if rounding has reduced it by at most this."""


@frozen
class RateRules:
    """The ``rate_per_process`` key of a worker's configuration."""

    per_s: float
    per: Per = "worker"
    burst: int = 1


class TokenBucket:
    """The tokens of a worker, a key, a partition or a class. Owner: poll thread."""

    __slots__ = ("_at", "_burst", "_per_s", "charged", "level")

    def __init__(self, rules: RateRules, now: float):
        self._per_s, self._burst = rules.per_s, rules.burst
        self._at = now
        self.level = float(rules.burst)
        self.charged = 0
        """Records that were dispatched and that no slot has taken yet."""

    def fill(self, now: float) -> None:
        """Add the tokens earned until ``now``."""
        if now > self._at:
            level = self.level + self._per_s * (now - self._at)
            self.level = max(self.level, min(self._burst - self.charged, level))
            self._at = now

    @property
    def room(self) -> int:
        """How many records may be charged."""
        return int(self.level + _ROUNDED) if self.level > 0 else 0

    def charge(self, records: int) -> None:
        """Take tokens; if there are too few, the bucket goes into debt and fills later."""
        self.level -= records
        self.charged += records

    def give_back(self, records: int) -> None:
        """Return the tokens of records that did not start."""
        self.level += records
        self.charged -= records

    def taken(self, records: int, at: float) -> None:
        """Record that a slot took charged records at ``at``."""
        self.fill(at)
        self.charged -= records

    def ready_at(self) -> float:
        """Return when there will be a token if nothing changes."""
        return self._at + max(0.0, 1.0 - self.level) / self._per_s

    def is_full(self, now: float) -> bool:
        """Return whether a new bucket would be the same."""
        self.fill(now)
        return not self.charged and self.level >= self._burst


class RateLimits:
    """The buckets of one worker, and the records that wait for them. Owner: poll thread."""

    bucket_type = TokenBucket

    def __init__(self, rules: RateRules):
        self.rules = rules
        self.now = 0.0
        """The time of the last update."""
        self._buckets: dict[object, TokenBucket] = {}
        self._forget_at = FORGET_AT
        self._waiting_slices: dict[Slice, int] = {}
        """Slices with charged records, and how many records of each a slot had taken."""
        self._dry: dict[Partition, float] = {}
        """Partitions held back only by their rate, and until when."""
        self.next_at = inf
        """When the first refused record or partition may proceed."""

    # ---- time

    def refill(self, now: float) -> list[Partition]:
        """Update which records slots have taken; return the partitions that may proceed."""
        self.now, self.next_at = now, inf
        for slice_ in list(self._waiting_slices):
            self._take_claimed(slice_, slice_.messages, slice_.claimed())
        ready = [partition for partition, until in self._dry.items() if until <= now]
        for partition in ready:
            del self._dry[partition]
        if self._dry:
            self.next_at = min(self._dry.values())
        return ready

    def _take_claimed(self, slice_: Slice, messages: Sequence[Message], claimed: int) -> None:
        seen = self._waiting_slices[slice_]
        if claimed <= seen:
            return
        # The start of the first is known; the others started at some time before now.
        first = min(slice_.started, self.now)
        for index in range(seen, claimed):
            bucket = self._named(self.name(slice_.partition, messages[index]))
            bucket.taken(1, first if index == 0 else self.now)
        if claimed == len(messages):
            del self._waiting_slices[slice_]
        else:
            self._waiting_slices[slice_] = claimed

    # ---- buckets

    def bucket(self, partition: Partition, message: Message) -> TokenBucket:
        """Return the bucket of a record, filled up to the last update.

        A copy uses the bucket of its source partition; records without a key share one.
        """
        bucket = self._named(self.name(partition, message))
        bucket.fill(self.now)
        return bucket

    def shared_bucket(self, partition: Partition) -> TokenBucket:
        """Return the bucket that all records of a partition share; not for rates by key."""
        bucket = self._named(self.name(partition, None))
        bucket.fill(self.now)
        return bucket

    def name(self, partition: Partition, message: Message | None) -> object:
        """Return the name of a record's bucket; records with equal names share one."""
        per = self.rules.per
        if per == "key" and message is not None:
            return message.key()
        return (
            (partition.retry_level.source, partition.name.partition) if per == "partition" else None
        )

    def _named(self, name: object) -> TokenBucket:
        bucket = self._buckets.get(name)
        if bucket is None:
            self._drop_full_ones()
            bucket = self._buckets[name] = self.bucket_type(self.rules, self.now)
        return bucket

    def __len__(self) -> int:
        return len(self._buckets)

    def _drop_full_ones(self) -> None:
        if len(self._buckets) < self._forget_at:
            return
        full = [name for name, bucket in self._buckets.items() if bucket.is_full(self.now)]
        for name in full:
            del self._buckets[name]
        self._forget_at = max(FORGET_AT, 2 * len(self._buckets))

    def may_start(self, partition: Partition, message: Message) -> bool:
        """Return whether a record may be charged now; if not, ``next_at`` is set."""
        bucket = self.bucket(partition, message)
        if bucket.room:
            return True
        self.refused(bucket)
        return False

    def may_all_start(self, partition: Partition, messages: Sequence[Message]) -> bool:
        """Return whether these records may be charged together; a full burst always suffices.

        If not, ``next_at`` is set.
        """
        buckets = Counter(self.bucket(partition, message) for message in messages)
        for bucket, records in buckets.items():
            if bucket.room < min(records, self.rules.burst):
                self.refused(bucket)
                return False
        return True

    def refused(self, bucket: TokenBucket) -> float:
        """Record that something waits for a bucket; return when it may have a token."""
        at = bucket.ready_at()
        if at <= self.now:
            # The bucket is as full as possible until slots take the charged records.
            at = self.now + 1 / self.rules.per_s
        self.next_at = min(self.next_at, at)
        return at

    @property
    def is_dry(self) -> bool:
        """Records wait, and no record of the worker may start now, whatever arrives."""
        return self.rules.per == "worker" and bool(self._dry) and not self._named(None).room

    # ---- records

    def wait(self, partition: Partition, until: float) -> None:
        """Record that only the rate holds a partition back."""
        self._dry[partition] = until
        self.next_at = min(self.next_at, until)

    def is_waiting(self, partition: Partition) -> bool:
        """Return whether only the rate holds a partition back."""
        return partition in self._dry

    def charge(self, partition: Partition, messages: Iterable[Message]) -> None:
        """Charge records that are about to be dispatched."""
        for message in messages:
            self.bucket(partition, message).charge(1)

    def give_back(self, partition: Partition, messages: Iterable[Message]) -> None:
        """Return the tokens of records that were not dispatched or did not start."""
        for message in messages:
            self.bucket(partition, message).give_back(1)

    def sent(self, slice_: Slice) -> None:
        """Record that charged records were dispatched."""
        self._waiting_slices[slice_] = 0

    def split(
        self, slice_: Slice, messages: Sequence[Message], unclaimed: Sequence[Message]
    ) -> None:
        """Record that the last records of a slice were taken back."""
        if slice_ in self._waiting_slices:
            self._take_claimed(slice_, messages, len(messages) - len(unclaimed))
            self._waiting_slices.pop(slice_, None)
            self.give_back(slice_.partition, unclaimed)

    def over(self, slice_: Slice) -> None:
        """Record that slots have taken all remaining records of a slice."""
        if slice_ in self._waiting_slices:
            self._take_claimed(slice_, slice_.messages, len(slice_.messages))

    def remove(self, partition: Partition) -> None:
        """Remove a released partition."""
        self._dry.pop(partition, None)
