"""A set of offsets with a known minimum: one bit each, in blocks that are dropped once empty."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

_SHIFT: Final = 10
_MASK: Final = (1 << _SHIFT) - 1


class OffsetSet:
    """Offsets that come and go roughly in order; a million of them take some 200 KiB."""

    def __init__(self) -> None:
        self._blocks: dict[int, int] = {}
        self._first: int | None = None
        """The lowest block; None if it must be found again."""
        self._count = 0

    def __len__(self) -> int:
        return self._count

    def __contains__(self, offset: int) -> bool:
        return bool(self._blocks.get(offset >> _SHIFT, 0) >> (offset & _MASK) & 1)

    def add(self, offset: int) -> None:
        """Add an offset, which may already be there."""
        block, bit = offset >> _SHIFT, 1 << (offset & _MASK)
        bits = self._blocks.get(block, 0)
        if bits & bit:
            return
        if self._first is not None and block < self._first:
            self._first = block
        self._blocks[block] = bits | bit
        self._count += 1

    def discard(self, offsets: Iterable[int]) -> None:
        """Remove offsets; those that are not there are ignored."""
        blocks = self._blocks
        for offset in offsets:
            block, bit = offset >> _SHIFT, 1 << (offset & _MASK)
            bits = blocks.get(block, 0)
            if not bits & bit:
                continue
            self._count -= 1
            if bits == bit:
                del blocks[block]
                self._first = None if block == self._first else self._first
            else:
                blocks[block] = bits ^ bit

    def lowest(self) -> int | None:
        """Return the lowest offset; None if it is empty."""
        if not self._blocks:
            return None
        if self._first is None:
            self._first = min(self._blocks)
        bits = self._blocks[self._first]
        return (self._first << _SHIFT) + (bits & -bits).bit_length() - 1
