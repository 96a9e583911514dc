"""What the peers' topics hold: numbered records, each of which says how long its handler waits."""

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
    """What a topic holds; the same contents are always the same records in the same order."""

    records: int
    keys: int
    """How many different keys, far fewer than records; each has one partition."""
    partitions: int = 4
    zipf: float = 0.0
    """How unevenly the keys come: the n-th key with a weight of 1 / n^zipf; 0: evenly."""
    shortest_us: int = 0
    longest_us: int = 0
    """A handler waits so long, evenly distributed between the two."""
    slow_one_in: int = 0
    """Of so many records one is slow, at random; 0: none is."""
    slow_us: int = 0

    @property
    def name(self) -> str:
        """The topic's name: a topic of this name that is complete holds just this."""
        wait = f"{self.shortest_us}-{self.longest_us}us" if self.longest_us else "nowait"
        slow = f"-slow{self.slow_one_in}x{self.slow_us}us" if self.slow_one_in else ""
        zipf = f"-zipf{self.zipf:g}" if self.zipf else ""
        return f"wc-peers-{self.records}-{self.partitions}p-{self.keys}keys{zipf}-{wait}{slow}"

    def scaled(self, scale: float) -> Contents:
        """Return the same with fewer records, or more; at least one for each key."""
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
    """The records of a topic, looked up by their number, which is the order of writing."""

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
        """How long all of them take at least, in so many slots and with each key in order."""
        return max(sum(self.waits_us) / 1e6 / slots, self.hottest_s)


@lru_cache(maxsize=2)
def fill(contents: Contents) -> Filled:
    """Return what is in a topic: keys and waits at random, always the same ones."""
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
    """Return a key as it stands in the topic."""
    return b"k%07d" % key
