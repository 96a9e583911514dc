"""Sums of records by outcome and by time bucket: the hot path of the audit.

Records arrive by the slice, and only differences within a slice cost a step in Python. Slices too
short to count alone are gathered, up to a limit, because their messages stay in memory meanwhile.

A record beyond a known end of the log was written after that end was reported. If its timestamp is
much older, or in the future, the producer's clock differs from ours, and its latency is not
reported.
"""

from __future__ import annotations

import hashlib
from bisect import bisect_right
from collections.abc import Iterable, Sequence
from functools import reduce
from operator import sub, xor
from typing import Any, Final, NamedTuple

from attrs import define, field

from window_consumer.audit.count import CountTier, latency_bounds, latency_bucket, signed64
from window_consumer.model.record import Message

CREATE_TIME: Final = 1
"""The first field of Message.timestamp() if the producer set the time."""

MAX_SKEW_MS: Final = 5_000
"""Clock differences up to this are tolerated, as for due times."""

Timestamp = tuple[int, int]
"""The result of Message.timestamp(): the kind, and milliseconds since 1970."""

NO_TIMESTAMP: Final = (0, 0)


def id_hash(record_id: bytes) -> int:
    """Return the 64-bit hash of a record's id: the first 8 bytes of its MD5, big-endian.

    Chosen because Spark has it, not for security.
    """
    return int.from_bytes(hashlib.md5(record_id, usedforsecurity=False).digest()[:8], "big")


def id_hashes(record_ids: Iterable[bytes]) -> list[int]:
    """Return ``id_hash`` of each id, without a function call per id."""
    md5, number = hashlib.md5, int.from_bytes
    return [number(md5(each, usedforsecurity=False).digest()[:8], "big") for each in record_ids]


class Columns(NamedTuple):
    """The data of some records for an audit, by column; None if not needed.

    A tuple, which takes a third of the time to create, once for each slice.
    """

    times_ms: Sequence[int]
    """The producers' timestamps."""
    sizes: Sequence[int]
    hashes: Sequence[int] | None
    wall_ms: int | Sequence[int]
    """When their outcome was known; one time per record if they were gathered."""
    skew: bool = False
    """Whether the clocks are known to differ, which makes latencies unknown."""
    stamps: Sequence[Timestamp] | None = None
    """Replaces ``times_ms`` where some timestamps are not the producer's."""

    def part(self, start: int, stop: int) -> Columns:
        """Return the columns of consecutive records."""
        hashes, stamps, wall_ms = self.hashes, self.stamps, self.wall_ms
        return Columns(
            self.times_ms[start:stop],
            self.sizes[start:stop],
            None if hashes is None else hashes[start:stop],
            wall_ms if isinstance(wall_ms, int) else wall_ms[start:stop],
            self.skew,
            None if stamps is None else stamps[start:stop],
        )

    def of(self, indices: Sequence[int]) -> Columns:
        """Return the columns of some of the records."""
        hashes, stamps, wall_ms = self.hashes, self.stamps, self.wall_ms
        return Columns(
            [self.times_ms[index] for index in indices] if stamps is None else (),
            [self.sizes[index] for index in indices],
            None if hashes is None else [hashes[index] for index in indices],
            wall_ms if isinstance(wall_ms, int) else [wall_ms[index] for index in indices],
            self.skew,
            None if stamps is None else [stamps[index] for index in indices],
        )


@define(eq=False)
class Sums:
    """The sums of one tier and bucket. Owner: its creator."""

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

    def add_latencies(self, times_ms: Sequence[int], wall_ms: int) -> None:
        """Add the latencies of records, with sorted timestamps, up to ``wall_ms``."""
        begin = 0
        while begin < len(times_ms):
            latency_ms = wall_ms - times_ms[begin]
            if latency_ms < -MAX_SKEW_MS:
                self.skewed += len(times_ms) - begin
                return
            bucket = latency_bucket(max(0, latency_ms))
            least_ms = latency_bounds(bucket)[0] if bucket else -MAX_SKEW_MS
            end = bisect_right(times_ms, wall_ms - least_ms, begin)
            self.latency[bucket] = self.latency.get(bucket, 0) + end - begin
            begin = end

    def as_fields(self, *, ids: bool) -> dict[str, Any]:
        """Return the fields of an ``AuditCount``; ``ids`` if hashes were added."""
        return {
            "count": self.count,
            "bytes": self.bytes,
            "without_timestamp": self.without_timestamp,
            "skewed": self.skewed,
            "id_xor": signed64(self.id_xor) if ids else None,
            "id_sum": signed64(self.id_sum) if ids else None,
            "latency": dict(sorted(self.latency.items())),
        }


class SumsByBucket(dict[tuple[CountTier, int], Sums]):
    """Sums by tier and by the bucket's start, in milliseconds. Owner: its creator."""

    def __init__(self, length_ms: int):
        super().__init__()
        self._length_ms = length_ms

    def add(self, tier: CountTier, columns: Columns) -> None:
        """Add records with the same outcome."""
        stamps, length_ms = columns.stamps, self._length_ms
        if stamps is None:
            # Sorting runs in C, and is nearly free for sorted input.
            times_ms = sorted(columns.times_ms)
            first_ms, last_ms = times_ms[0], times_ms[-1]
            if first_ms > 0 and first_ms // length_ms == last_ms // length_ms:
                sums = self._sums(tier, first_ms // length_ms * length_ms)
                sums.count += len(times_ms)
                sums.bytes += sum(columns.sizes)
                if columns.hashes is not None:
                    sums.add_hashes(columns.hashes)
                if columns.skew:
                    sums.skewed += len(times_ms)
                elif isinstance(columns.wall_ms, int):
                    sums.add_latencies(times_ms, columns.wall_ms)
                else:
                    # Relative to a common end of 0.
                    sums.add_latencies(sorted(map(sub, columns.times_ms, columns.wall_ms)), 0)
                return
            stamps = [(CREATE_TIME, each) for each in columns.times_ms]
        for index, (kind, milliseconds) in enumerate(stamps):
            self._add_one(tier, columns, index, kind, milliseconds)

    def _add_one(
        self, tier: CountTier, columns: Columns, index: int, kind: int, milliseconds: int
    ) -> None:
        known = kind > 0 and milliseconds > 0
        bucket_ms = milliseconds // self._length_ms * self._length_ms if known else 0
        sums = self._sums(tier, bucket_ms)
        sums.count += 1
        sums.bytes += columns.sizes[index]
        if columns.hashes is not None:
            sums.add_hashes((columns.hashes[index],))
        if kind != CREATE_TIME or not known:
            sums.without_timestamp += 1
        elif columns.skew:
            sums.skewed += 1
        else:
            wall_ms = columns.wall_ms
            reported_ms = wall_ms if isinstance(wall_ms, int) else wall_ms[index]
            sums.add_latencies((milliseconds,), reported_ms)

    def _sums(self, tier: CountTier, bucket_ms: int) -> Sums:
        found = self.get((tier, bucket_ms))
        if found is None:
            found = self[tier, bucket_ms] = Sums()
        return found


SHORT_RECORDS: Final = 32
"""Shorter slices are gathered."""

MOST_RECORDS: Final = 256
"""Enough to spread the fixed cost of a count; one such batch takes half a millisecond."""

MOST_BYTES: Final = 256 << 10
"""The most bytes of values kept alive, for each partition."""


@define(eq=False)
class Gathered:
    """Records of one partition with the same outcome. Owner: poll thread."""

    tier: CountTier = CountTier.FINISHED
    skew: bool = False
    """Whether the clocks were known to differ at the time of the outcome."""
    messages: list[Message] = field(factory=list)
    _walls_ms: list[int] = field(factory=list)
    _bytes: int = 0
    most_records: int = MOST_RECORDS

    def take(self, messages: Sequence[Message], wall_ms: float) -> bool:
        """Keep records with their outcome known at ``wall_ms``; return whether it is full."""
        count = len(messages)
        self.messages += messages
        if count == 1:
            self._walls_ms.append(int(wall_ms))
            self._bytes += len(messages[0])
        else:
            self._walls_ms += [int(wall_ms)] * count
            self._bytes += sum(map(len, messages))
        return len(self.messages) >= self.most_records or self._bytes >= MOST_BYTES

    def all(self) -> tuple[list[Message], list[int]]:
        """Return the records and the times of their outcomes, and clear both."""
        messages, walls_ms = self.messages, self._walls_ms
        self.messages, self._walls_ms, self._bytes = [], [], 0
        return messages, walls_ms


TOLERANCE_MS: Final = 60_000
"""Allows for batching, producers' retries and an outdated end of the log."""


class SkewWatch:
    """Detects clock skew in one assignment of one partition. Owner: poll thread."""

    def __init__(self, now: float):
        self.is_skewed = False
        self._log_end: int | None = None
        self._since = now
        """Since when this end of the log is known."""

    def check(self, log_end: int | None, last: Message, now: float, wall_ms: int) -> None:
        """Check the last of the records taken; ``log_end`` is the end reported before them."""
        known, since = self._log_end, self._since
        if log_end is not None and log_end != known:
            self._log_end, self._since = log_end, now
        if known is None or last.offset() < known:
            return
        kind, milliseconds = last.timestamp()
        if kind != 1 or milliseconds <= 0:
            return
        most_ms = (now - since) * 1000 + TOLERANCE_MS
        age_ms = wall_ms - milliseconds
        self.is_skewed = age_ms > most_ms
