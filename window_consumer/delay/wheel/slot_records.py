"""The slot whose second comes next: the places of its records by due time, and the first records.

Decoding is a large part of a record's cost. As far as memory allows, it is done before the second
begins: the second is for sending.
"""

from __future__ import annotations

from array import array
from collections import deque
from typing import Final

from attrs import define, field

from window_consumer.delay.wheel.slot_files import SlotFiles
from window_consumer.delay.wheel.waiting_record import WaitingRecord, decode

_STEP_MS: Final = 10

_LENGTH_BITS: Final = 28
"""The bits of a place that hold the length: records are smaller than 256 MiB, files than 64 GiB."""

_LENGTH_MASK: Final = (1 << _LENGTH_BITS) - 1


@define
class _Step:
    """Places of records that are due within some milliseconds, in the order of the file."""

    places: array[int] = field(factory=lambda: array("Q"))
    next: int = 0
    """The first place that was not taken."""
    decoded: deque[WaitingRecord] = field(factory=deque)
    """The records of the places from ``next`` on, as many as were decoded."""


@define
class LoadedSlot:
    """The records of one second by due time. Owner: the wheel's owner."""

    files: SlotFiles
    second: int
    steps: dict[int, _Step] = field(factory=dict)
    count: int = 0
    """The number of records in its file."""
    decoded_bytes: int = 0
    """The bytes of records that were decoded and not taken."""

    def add(self, due_ms: int, at: int, length: int) -> None:
        """Add the place of a record."""
        self.count += 1
        step = self.steps.setdefault(due_ms % 1000 // _STEP_MS, _Step())
        step.places.append(at << _LENGTH_BITS | length)

    def take_due(self, wall_ms: float, most: int) -> list[WaitingRecord]:
        """Take up to ``most`` records that are due, all of them if fewer; raises DamagedError."""
        due = int(wall_ms + 1 - self.second * 1000) // _STEP_MS
        found: list[WaitingRecord] = []
        while len(found) < most and self.steps and (number := min(self.steps)) < due:
            step = self.steps[number]
            places = step.places[step.next : step.next + most - len(found)]
            step.next += len(places)
            decoded = min(len(places), len(step.decoded))
            self.decoded_bytes -= sum(place & _LENGTH_MASK for place in places[:decoded])
            found += [step.decoded.popleft() for _ in range(decoded)]
            found += map(self._read, places[decoded:])
            if step.next == len(step.places):
                del self.steps[number]
        return found

    def decode_ahead(self, most_bytes: int) -> int:
        """Decode about this many bytes of the next records that are not decoded yet.

        Returns the bytes; raises DamagedError.
        """
        done = 0
        for number in sorted(self.steps):
            step = self.steps[number]
            for place in step.places[step.next + len(step.decoded) :]:
                if done >= most_bytes:
                    break
                step.decoded.append(self._read(place))
                done += place & _LENGTH_MASK
        self.decoded_bytes += done
        return done

    def _read(self, place: int) -> WaitingRecord:
        return decode(self.files.read(self.second, place >> _LENGTH_BITS, place & _LENGTH_MASK))
