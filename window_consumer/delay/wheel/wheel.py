"""The wheel of one partition: its waiting records and those that are due.

Each second has a slot, which is a file. Just before its second begins, a slot is loaded: the places
of its records are kept by due time. Records are taken when they are due, and done when the broker
has acked them. A second has fired when it is over and all of its records are done; its file is then
deleted.
"""

from __future__ import annotations

import heapq
from array import array
from collections.abc import Callable, Iterable, Sequence
from typing import Final

from attrs import define, field

from window_consumer.delay.wheel.offsets import OffsetSet
from window_consumer.delay.wheel.slot_files import OpenFiles, SlotFiles
from window_consumer.delay.wheel.slot_records import LoadedSlot
from window_consumer.delay.wheel.waiting_record import DamagedError, WaitingRecord, encode
from window_consumer.model.offset_ranges import Ranges, united

SLOTS: Final = 7200
"""How many slots there are, a second each: records due later pass through levels first."""

HORIZON_MS: Final = SLOTS * 1000
_AHEAD_MS: Final = 500
"""How early a slot is loaded: its second itself is for sending."""

_MOST_DELIVERED: Final = 2000
"""The most delivered offsets in a commit. Each usually is a range, and more would not fit."""


@define
class _Taken:
    """A second whose records were taken: those without an ack and the offsets of the others."""

    open: int = 0
    done: array[int] = field(factory=lambda: array("q"))


class Wheel:
    """The waiting records of one partition. Owner: one thread at a time.

    Memory: a bit for each offset from the lowest that waits to the highest, some 200 bytes for each
    second with records, and 8 bytes for each record of the second that fires.
    """

    def __init__(self, files: SlotFiles, fired: int):
        self._files = files
        self.fired = fired
        """The last second that has fired: it and all before it have no records left."""
        self._closed = fired
        """The last second whose records were all taken."""
        self._waiting = OffsetSet()
        self._taken: dict[int, _Taken] = {}
        self._in_flight: set[int] = set()
        self._seconds: list[int] = []
        """A heap of the seconds with slots that are not loaded."""
        self._counts: dict[int, int] = {}
        """How many records each slot's file has, in slots that are not loaded."""
        self._loaded: LoadedSlot | None = None

    def __len__(self) -> int:
        return len(self._waiting)

    def __contains__(self, offset: int) -> bool:
        return offset in self._waiting

    @property
    def lowest(self) -> int | None:
        """The lowest offset that waits, or was taken but is not done."""
        return self._waiting.lowest()

    def takes(self, due_ms: int, wall_ms: float) -> bool:
        """Return whether a record due then may be added; False if its second is over."""
        second = due_ms // 1000
        return second > self._closed and (second + 1) * 1000 > wall_ms

    # ---- records in

    def add(self, record: WaitingRecord) -> None:
        """Let a record wait; ``takes`` must be true for it."""
        data = encode(record)
        second = record.second
        at, is_new = self._files.append(second, data)
        self._waiting.add(record.offset)
        loaded = self._loaded
        if loaded is not None and loaded.second == second:
            loaded.add(record.due_ms, at, len(data))
            return
        if loaded is not None and second < loaded.second:
            self._put_back(loaded)
        if is_new:
            heapq.heappush(self._seconds, second)
        self._counts[second] = self._counts.get(second, 0) + 1

    def restore(self, is_waiting: Callable[[int], bool], fired: int) -> None:
        """Take the files of an earlier process over into an empty wheel.

        ``is_waiting`` returns whether an offset belongs to this wheel; records in files up to
        ``fired`` were delivered. Raises DamagedError if a file is not as it was written.
        """
        for second in sorted(self._files.found()):
            if second <= max(fired, self.fired):
                self._files.delete(second)
                continue
            count = 0
            for place in self._files.checked(second):
                count += 1
                if is_waiting(place.offset):
                    self._waiting.add(place.offset)
            self._counts[second] = count
            heapq.heappush(self._seconds, second)

    # ---- records out

    def due(self, wall_ms: float, most: int) -> list[WaitingRecord]:
        """Take up to ``most`` records that are due; ``done`` must follow for each.

        Raises DamagedError if a file is not as it was written.
        """
        found: list[WaitingRecord] = []
        while len(found) < most:
            loaded = self._load(wall_ms)
            if loaded is None or wall_ms < loaded.second * 1000:
                break
            asked = most - len(found)
            batch = loaded.take_due(wall_ms, asked)
            new = self._not_taken(batch)
            found += new
            self._taken.setdefault(loaded.second, _Taken()).open += len(new)
            if len(batch) == asked:
                continue  # further records may be due
            if loaded.steps or wall_ms < (loaded.second + 1) * 1000:
                break
            self._closed, self._loaded = loaded.second, None
        return found

    def _not_taken(self, records: Iterable[WaitingRecord]) -> list[WaitingRecord]:
        """Take the records that still wait: one that Kafka delivered twice is in the file twice."""
        in_flight, waiting, found = self._in_flight, self._waiting, []
        for record in records:
            offset = record.offset
            if offset not in in_flight and offset in waiting:
                in_flight.add(offset)
                found.append(record)
        return found

    def decode_ahead(self, wall_ms: float, most_bytes: int) -> int:
        """Decode records of the loaded slot; return their bytes, 0 if there are none.

        Due records are then ready to send. Raises DamagedError like ``due``.
        """
        loaded = self._load(wall_ms)
        return 0 if loaded is None else loaded.decode_ahead(most_bytes)

    @property
    def decoded_bytes(self) -> int:
        """The bytes of records that were decoded and not taken."""
        return 0 if self._loaded is None else self._loaded.decoded_bytes

    def _load(self, wall_ms: float) -> LoadedSlot | None:
        if self._loaded is None and self._seconds:
            second = self._seconds[0]
            if second * 1000 <= wall_ms + _AHEAD_MS:
                self._loaded = LoadedSlot(self._files, heapq.heappop(self._seconds))
                for place in self._files.load(second):
                    self._loaded.add(place.due_ms, place.at, place.length)
                if self._loaded.count != self._counts.pop(second):
                    raise DamagedError
        return self._loaded

    def _put_back(self, loaded: LoadedSlot) -> None:
        """Unload a slot that has not begun because an earlier second got its first record."""
        self._counts[loaded.second] = loaded.count
        heapq.heappush(self._seconds, loaded.second)
        self._loaded = None

    def done(self, records: Sequence[WaitingRecord]) -> None:
        """Record that the broker has acked records."""
        offsets = [record.offset for record in records]
        self._in_flight.difference_update(offsets)
        self._waiting.discard(offsets)
        for record in records:
            taken = self._taken[record.second]
            taken.open -= 1
            taken.done.append(record.offset)

    def over(self, wall_ms: float) -> list[int]:
        """Advance ``fired``; return the seconds with files that have fired since the last call.

        Record them, and then call ``delete_fired`` for each.
        """
        fired = []
        for second in sorted(self._taken):
            if second > self._closed or self._taken[second].open:
                break
            fired.append(second)
            self.fired = second
            del self._taken[second]
        if not self._taken:
            first = self._seconds[0] if self._seconds else None
            first = first if self._loaded is None else self._loaded.second
            last = int(wall_ms // 1000) - 1
            self.fired = max(self.fired, last if first is None else min(last, first - 1))
            self._closed = max(self._closed, self.fired)
        return fired

    def delete_fired(self, second: int) -> None:
        """Delete the file of a second that has fired."""
        self._files.delete(second)

    def next_ms(self, wall_ms: float) -> float | None:
        """Return when ``due`` should be called; None if all waiting records were taken."""
        if self._loaded is not None:
            return max(wall_ms, self._loaded.second * 1000)
        return self._seconds[0] * 1000 - _AHEAD_MS if self._seconds else None

    def delivered(self) -> Ranges:
        """Return the done offsets whose seconds have not fired, unless there are too many."""
        if sum(len(taken.done) for taken in self._taken.values()) > _MOST_DELIVERED:
            return ()
        done = (offset for taken in self._taken.values() for offset in taken.done)
        return united((offset, offset + 1) for offset in done)

    # ---- files

    def use(self, files: OpenFiles) -> None:
        """Use these shared open files from now on."""
        self._files.use(files)

    def flush(self) -> None:
        """Write the bytes in memory."""
        self._files.flush()

    def emptied(self, fired: int) -> Wheel:
        """Return a new, empty wheel in place of this one."""
        self._files.delete_all()
        return Wheel(self._files, fired)

    def close(self) -> None:
        """Close the files."""
        self._files.close()
