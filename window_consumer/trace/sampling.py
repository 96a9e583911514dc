"""Selects the records to trace, with the same result in every process and at every step.

A record with its own id (``wc-id``) is selected by a hash of the id. A record without one is
selected by position: its partition is divided into stretches of ``1 / ratio`` offsets, and a hash
picks one offset of each. So unselected records cost nothing. With sampling by key, a hash of the
key selects all records of that key.
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
    """The sampling rule; ``ratio`` is rounded to millionths."""

    ratio: float = 1.0
    by: By = "record"

    @property
    def takes_all(self) -> bool:
        """Return whether every record is traced."""
        return self.ratio >= 1.0

    @property
    def takes_none(self) -> bool:
        """Return whether no record is traced."""
        return self._millionths == 0

    @property
    def _millionths(self) -> int:
        return min(_MILLION, round(self.ratio * _MILLION))

    def takes(self, name: bytes) -> bool:
        """Return whether the record with this id, or every record of this key, is traced."""
        return crc32(name) * _MILLION < self._millionths * _BITS

    def places(self, seed: int, first: int, stop: int) -> list[int]:
        """Return the traced offsets from ``first`` up to, not including, ``stop``.

        ``seed`` is ``seed_of`` their partition. The other offsets cost nothing.
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
        """Return whether a record without an id is traced."""
        return self.takes_all or bool(self.places(seed, offset, offset + 1))

    def chosen_by_name(self, names: Sequence[bytes | None]) -> list[int]:
        """Return the indices of the traced ids or keys; None counts as empty."""
        limit = self._millionths * _BITS
        return [i for i, name in enumerate(names) if crc32(name or b"") * _MILLION < limit]


def seed_of(topic: str, partition: int) -> int:
    """Return the seed that selects a partition's offsets."""
    return crc32(f"{topic}/{partition}".encode()) << 32


def _begin(stretch: int, share: int) -> int:
    """Return the first offset of a stretch: stretches cover all offsets, and none is empty."""
    return -(-stretch * _MILLION // share)


def _mixed(number: int) -> int:
    """Return a well-mixed hash of a number (the finalizer of splitmix64)."""
    number = (number * 0x9E3779B97F4A7C15) & _MASK
    number = ((number ^ (number >> 30)) * 0xBF58476D1CE4E5B9) & _MASK
    return number ^ (number >> 31)
