"""What is summed of records: by what became of them and by the bucket of their timestamp.

The hot path of the audit. Records come by the slice, and only what differs within a slice costs a
step in Python: its distinct timestamps, which are few where producers write fast.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Iterable, Sequence
from functools import reduce
from operator import xor
from typing import Any, Final

from attrs import define, field, frozen

from window_consumer.model.audit_count import Tier, latency_bucket, signed64

CREATE_TIME: Final = 1
"""The first field of Message.timestamp() where it is the producer's."""

MAX_SKEW_MS: Final = 5_000
"""Clocks that agree to this are not called skewed: the same figure as for what is due."""

Timestamp = tuple[int, int]
"""What Message.timestamp() returns: the kind, and milliseconds since 1970."""

NO_TIMESTAMP: Final = (0, 0)


def id_hash(record_id: bytes) -> int:
    """Return the 64-bit hash of a record's id: the first 8 bytes of its MD5, big-endian.

    Not for safety: it is one that Spark has, too.
    """
    return int.from_bytes(hashlib.md5(record_id, usedforsecurity=False).digest()[:8], "big")


@frozen(slots=True, eq=False)
class Columns:
    """What an audit needs of some records, a column each; what is not needed is None."""

    timestamps: Sequence[Timestamp]
    sizes: Sequence[int]
    hashes: Sequence[int] | None
    wall_ms: int
    """When what became of them was heard of."""
    skew: bool = False
    """The clocks are known to differ: no latency can be told."""

    def part(self, start: int, stop: int) -> Columns:
        """Return the columns of some of the records that follow each other."""
        hashes = None if self.hashes is None else self.hashes[start:stop]
        timestamps, sizes = self.timestamps[start:stop], self.sizes[start:stop]
        return Columns(timestamps, sizes, hashes, self.wall_ms, self.skew)

    def of(self, indices: Iterable[int]) -> Columns:
        """Return the columns of some of the records."""
        indices = list(indices)
        hashes = self.hashes
        return Columns(
            [self.timestamps[index] for index in indices],
            [self.sizes[index] for index in indices],
            None if hashes is None else [hashes[index] for index in indices],
            self.wall_ms,
            self.skew,
        )


@define(eq=False)
class Sums:
    """The sums of one tier and bucket. Owner: whoever adds."""

    count: int = 0
    bytes: int = 0
    without_timestamp: int = 0
    skewed: int = 0
    id_xor: int = 0
    id_sum: int = 0
    latency: dict[int, int] = field(factory=dict)

    def add_hashes(self, hashes: Iterable[int]) -> None:
        """Add records' ids to the checksums."""
        hashes = list(hashes)
        self.id_xor ^= reduce(xor, hashes, 0)
        self.id_sum += sum(hashes)

    def add_latency(self, milliseconds: int, count: int, *, skew: bool) -> None:
        """Add so many records that took so long."""
        if skew or milliseconds < -MAX_SKEW_MS:
            self.skewed += count
            return
        bucket = latency_bucket(max(0, milliseconds))
        self.latency[bucket] = self.latency.get(bucket, 0) + count

    def as_fields(self, *, ids: bool) -> dict[str, Any]:
        """Return the fields of an ``AuditCount``; ``ids`` where hashes were added."""
        return {
            "count": self.count,
            "bytes": self.bytes,
            "without_timestamp": self.without_timestamp,
            "skewed": self.skewed,
            "id_xor": signed64(self.id_xor) if ids else None,
            "id_sum": signed64(self.id_sum) if ids else None,
            "latency": dict(sorted(self.latency.items())),
        }


class SumsByBucket(dict[tuple[Tier, int], Sums]):
    """Sums by tier and by the start of the bucket, in milliseconds. Owner: whoever adds."""

    def __init__(self, length_ms: int):
        super().__init__()
        self._length_ms = length_ms

    def add(self, tier: Tier, columns: Columns) -> None:
        """Add records that became the same."""
        times = Counter(columns.timestamps)
        buckets = {each[1] // self._length_ms for each in times}
        if len(buckets) == 1 and all(each[0] == CREATE_TIME and each[1] > 0 for each in times):
            sums = self._sums(tier, buckets.pop() * self._length_ms)
            sums.count += len(columns.timestamps)
            sums.bytes += sum(columns.sizes)
            if columns.hashes is not None:
                sums.add_hashes(columns.hashes)
            for (_, milliseconds), count in times.items():
                sums.add_latency(columns.wall_ms - milliseconds, count, skew=columns.skew)
            return
        hashes = columns.hashes
        for index, (kind, milliseconds) in enumerate(columns.timestamps):
            known = kind > 0 and milliseconds > 0
            bucket = milliseconds // self._length_ms * self._length_ms if known else 0
            sums = self._sums(tier, bucket)
            sums.count += 1
            sums.bytes += columns.sizes[index]
            if hashes is not None:
                sums.add_hashes((hashes[index],))
            if kind == CREATE_TIME and known:
                sums.add_latency(columns.wall_ms - milliseconds, 1, skew=columns.skew)
            else:
                sums.without_timestamp += 1

    def _sums(self, tier: Tier, bucket_ms: int) -> Sums:
        found = self.get((tier, bucket_ms))
        if found is None:
            found = self[tier, bucket_ms] = Sums()
        return found
