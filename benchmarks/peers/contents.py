"""The contents of the peers' topics: numbered records, each with the wait of its handler."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from functools import lru_cache
from itertools import accumulate
from struct import Struct

from attrs import frozen

_SEED = 20_261
_HEAD = Struct(">II")
_VALUE_BYTES = 100
_PADDING = b"x" * (_VALUE_BYTES - _HEAD.size)


@frozen
class Contents:
    """What a topic holds; equal contents are always the same records in the same order."""

    records: int
    keys: int
    """The number of keys, far below that of records; each has one partition."""
    partitions: int = 4
    zipf: float = 0.0
    """The skew of the keys: the n-th key has a weight of 1 / n^zipf; 0: none."""
    shortest_us: int = 0
    longest_us: int = 0
    """The longest wait of a handler; waits are evenly distributed."""
    slow_one_in: int = 0
    """One record in this many is slow, at random; 0: none is."""
    slow_us: int = 0

    @property
    def name(self) -> str:
        """The topic's name: a complete topic of this name has exactly these contents."""
        wait = f"{self.shortest_us}-{self.longest_us}us" if self.longest_us else "nowait"
        slow = f"-slow{self.slow_one_in}x{self.slow_us}us" if self.slow_one_in else ""
        zipf = f"-zipf{self.zipf:g}" if self.zipf else ""
        return f"wc-peers-{self.records}-{self.partitions}p-{self.keys}keys{zipf}-{wait}{slow}"

    def scaled(self, scale: float) -> Contents:
        """Return the same with fewer or more records, at least one per key."""
        return Contents(
            max(self.keys, round(self.records * scale)),
            self.keys,
            self.partitions,
            self.zipf,
            self.shortest_us,
            self.longest_us,
            self.slow_one_in,
            self.slow_us,
        )


@frozen
class Filled:
    """The records of a topic by their number, which is the order of writing."""

    partitions: Sequence[int]
    offsets: Sequence[int]
    keys: Sequence[int]
    waits_us: Sequence[int]
    log_ends: Sequence[int]
    """How many records each partition has."""

    def values(self) -> Iterator[bytes]:
        """Yield the value of each record: its number, the wait, and padding up to 100 bytes."""
        for number, wait_us in enumerate(self.waits_us):
            yield _HEAD.pack(number, wait_us) + _PADDING

    @property
    def hottest_s(self) -> float:
        """How long the records of the busiest key take one after another."""
        of_key: dict[int, int] = {}
        for key, wait_us in zip(self.keys, self.waits_us, strict=True):
            of_key[key] = of_key.get(key, 0) + wait_us
        return max(of_key.values()) / 1e6

    def shortest_s(self, slots: int) -> float:
        """Return the shortest possible time in so many slots, with each key in order."""
        return max(sum(self.waits_us) / 1e6 / slots, self.hottest_s)


@lru_cache(maxsize=2)
def fill(contents: Contents) -> Filled:
    """Return a topic's contents: random keys and waits, always the same ones."""
    rng = random.Random(_SEED)
    weights = list(accumulate(1 / (n + 1) ** contents.zipf for n in range(contents.keys)))
    keys = rng.choices(range(contents.keys), cum_weights=weights, k=contents.records)
    slow: set[int] = set()
    if contents.slow_one_in:
        slow = set(rng.sample(range(contents.records), contents.records // contents.slow_one_in))
    low, spread = contents.shortest_us, contents.longest_us - contents.shortest_us
    waits = [
        contents.slow_us if number in slow else low + int(rng.random() * (spread + 1))
        for number in range(contents.records)
    ]
    partitions = [key % contents.partitions for key in keys]
    ends = [0] * contents.partitions
    offsets = []
    for partition in partitions:
        offsets.append(ends[partition])
        ends[partition] += 1
    return Filled(partitions, offsets, keys, waits, ends)


def key_bytes(key: int) -> bytes:
    """Return a key as it is in the topic."""
    return b"k%07d" % key
