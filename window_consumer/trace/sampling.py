"""Which records are traced: every step of a record alike, in every process that sees it.

A record with an id of its own (``wc-id``) is chosen by a hash of that. One without is chosen by its
place: its partition is cut into stretches of ``1 / ratio`` offsets and one of each is taken, which
one a hash says. So nobody has to look at those that are not chosen. By key, a hash of the key says
whether all of its records are.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal
from zlib import crc32

from attrs import frozen

_MILLION = 1_000_000
_BITS = 1 << 32
_MASK = (1 << 64) - 1

By = Literal["record", "key"]


@frozen
class Sampling:
    """The rule; ``ratio`` counts in millionths."""

    ratio: float = 1.0
    by: By = "record"

    @property
    def takes_all(self) -> bool:
        """Every record is traced."""
        return self.ratio >= 1.0

    @property
    def takes_none(self) -> bool:
        """No record is traced."""
        return self._millionths == 0

    @property
    def _millionths(self) -> int:
        return min(_MILLION, round(self.ratio * _MILLION))

    def takes(self, name: bytes) -> bool:
        """Tell whether the record with this id, or all of this key, are traced."""
        return crc32(name) * _MILLION < self._millionths * _BITS

    def places(self, seed: int, first: int, stop: int) -> list[int]:
        """Return those of the offsets from ``first`` to before ``stop`` that are traced.

        ``seed`` is that of their partition, see ``seed_of``. Costs nothing for the others.
        """
        share = self._millionths
        if not share or first >= stop:
            return []
        found = []
        stretch = first * share // _MILLION
        while (begin := _begin(stretch, share)) < stop:
            width = _begin(stretch + 1, share) - begin
            place = begin + _mixed(seed + stretch) % width
            if first <= place < stop:
                found.append(place)
            stretch += 1
        return found

    def takes_place(self, seed: int, offset: int) -> bool:
        """Tell whether a record without an id is traced."""
        return self.takes_all or bool(self.places(seed, offset, offset + 1))

    def chosen_by_name(self, names: Sequence[bytes | None]) -> list[int]:
        """Return the indices of the ids, or keys, that are traced; None counts as an empty one."""
        limit = self._millionths * _BITS
        return [i for i, name in enumerate(names) if crc32(name or b"") * _MILLION < limit]


def seed_of(topic: str, partition: int) -> int:
    """Return what stands for a partition where its offsets are chosen."""
    return crc32(f"{topic}/{partition}".encode()) << 32


def _begin(stretch: int, share: int) -> int:
    """Return the first offset of a stretch: each offset belongs to one, each stretch has some."""
    return -(-stretch * _MILLION // share)


def _mixed(number: int) -> int:
    """Return a number that has nothing to do with the one before (the end of splitmix64)."""
    number = (number * 0x9E3779B97F4A7C15) & _MASK
    number = ((number ^ (number >> 30)) * 0xBF58476D1CE4E5B9) & _MASK
    return number ^ (number >> 31)
