"""Which records may start now: without order, by key, or one after another.

An ordering holds the records of one partition that are in the window and not started. It promises
two things. At most one record of a lane is in progress (in a slice, waiting for its retry, being
copied to another topic), apart from those that follow it in the same slice. The records of a lane
leave in the order of their delivery.

``Lanes``, which siblings share, knows which lanes are busy. It does not promise the lane to the
sibling that waits longest: a copy was already overtaken.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import chain
from typing import Any

from window_consumer.engine.scheduling.lanes import NO_HOLD, Lane, LaneHold, LaneOf, Lanes
from window_consumer.engine.scheduling.record_queue import Place, RecordRun, RunQueue
from window_consumer.model.record import Message

NEAR = 200
"""How many lanes beside a place are searched for one that may be taken."""

Taken = tuple[RecordRun, LaneHold]
"""Records that left their ordering, and the hold on the lanes they keep busy."""


class Ordering(ABC):
    """The records of a partition that are waiting to start. Owner: poll thread."""

    lane_of: LaneOf | None = None

    def __init__(self, lanes: Lanes) -> None:
        self._queue = RunQueue()
        self.lanes = lanes
        self.lines: dict[Lane, Any] = {}
        """Records that wait for a lane, in delivered order."""
        self.ready: dict[Lane, None] = {}
        """Lanes with waiting records that nobody holds and that were offered here, oldest first."""
        self.singly = False
        """Most calls return results. A record then never follows another of its lane in a slice,
        where it would only wait for their acks."""
        lanes.join(self)

    @property
    def plain(self) -> Ordering:
        """The ordering itself, without what is around it."""
        return self

    @property
    def unpaced(self) -> Ordering:
        """The ordering without a rate in front of it."""
        return self

    def within(self, wrap: Callable[[Ordering], Ordering]) -> Ordering:
        """Return the ordering within another one, behind a rate in front of it."""
        return wrap(self)

    @property
    def waits(self) -> bool:
        """Something waits only for its rate."""
        return False

    def add(self, run: RecordRun) -> None:
        """Take newly delivered records."""
        self._queue.append(run)

    @property
    def startable(self) -> int:
        """An upper bound of how many records could start now; 0 means none."""
        return self._queue.records

    @property
    def oldest(self) -> Message | None:
        """The waiting record with about the lowest offset: records taken back may hide it."""
        return self._queue.first

    @property
    def longest_line(self) -> tuple[Lane, int] | None:
        """The lane with the most waiting records, and their number; None if none wait."""
        return None

    def line_of(self, lane: Lane | None) -> int:  # noqa: ARG002 - there are no lanes here
        """Return how many records of a lane wait for the one in progress."""
        return 0

    def waiting(self) -> Iterator[tuple[int, Message]]:
        """Yield the waiting records with their sequence numbers, for display: walks all of them."""
        return self._queue.records_in_order()

    @abstractmethod
    def take(self, count: int) -> Taken | None:
        """Let at most ``count`` records start; None if none can.

        Return them with the hold on their lanes.
        """

    def take_at(
        self,
        place: Place,
        but: Callable[[Lane], bool],  # noqa: ARG002 - there are no lanes here
    ) -> Taken | None:
        """Let one record from a place of the window start; None if none can.

        Lanes for which ``but`` returns true are left out.
        """
        run = self._queue.take_at(place)
        return None if run is None else (run, NO_HOLD)

    @abstractmethod
    def take_more(self, count: int, hold: LaneHold) -> RecordRun | None:
        """Take records as ``take`` does for the owner of ``hold``; they may belong to its lanes.

        Afterwards the hold covers their lanes too.
        """

    @abstractmethod
    def acquire(self, lanes: Iterable[Lane | None]) -> LaneHold:
        """Hold lanes of records that have left, on behalf of something other than their slice."""

    def put_back(self, messages: list[Message], seqs: Sequence[int]) -> None:
        """Take unstarted records back; they are first in line again.

        Their hold is released separately, before or after.
        """
        self._queue.put_in_front(RecordRun.of(messages, seqs))

    def offer(self, lane: Lane) -> None:
        """Let the first record of a lane's line start: nobody holds the lane."""
        raise NotImplementedError  # nothing waits in line here

    def withdraw(self, lane: Lane) -> None:
        """Let a lane's line wait again: the lane is held."""
        raise NotImplementedError  # as above

    def clear(self) -> None:
        """Discard everything that waits; records in progress keep their lanes."""
        self._queue.clear()

    def leave(self) -> None:
        """Discard everything, and release all lanes that records of this partition hold."""
        self.clear()
        self.lanes.leave(self)


class Unordered(Ordering):
    """All records may start at any time."""

    def take(self, count: int) -> Taken | None:
        run = self._queue.take(count)
        return None if run is None else (run, NO_HOLD)

    def take_more(self, count: int, hold: LaneHold) -> RecordRun | None:  # noqa: ARG002 - there are no lanes
        return self._queue.take(count)

    def acquire(self, lanes: Iterable[Lane | None]) -> LaneHold:  # noqa: ARG002 - there are none
        return NO_HOLD


def _key_function(messages: list[Message]) -> Callable[[Message], Lane]:
    # All messages of a run come from one source, so they share a type. Its function through map
    # costs 16 ns a record; calling each message's method costs twice as much.
    return type(messages[0]).key


def _offset(message: Message) -> int:
    return int(message.offset())


_WHOLE_PARTITION: Lane = "partition"


class ByPartition(Ordering):
    """One slice at a time: every record waits for the one before it."""

    lane_of: LaneOf | None = staticmethod(lambda _message: _WHOLE_PARTITION)

    @property
    def startable(self) -> int:
        return 0 if self.lanes.busy else self._queue.records

    def line_of(self, lane: Lane | None) -> int:
        return 0 if lane is None else self._queue.records

    def take(self, count: int) -> Taken | None:
        if self.lanes.busy:
            return None
        run = self._queue.take(1 if self.singly else count)
        return None if run is None else (run, self.lanes.enter(self, (_WHOLE_PARTITION,)))

    def take_at(self, place: Place, but: Callable[[Lane], bool]) -> Taken | None:  # noqa: ARG002 - only the first may start
        return None if but(_WHOLE_PARTITION) else self.take(1)

    def take_more(self, count: int, hold: LaneHold) -> RecordRun | None:
        if not self.lanes.only(hold):
            return None
        return self._queue.take(1 if self.singly else count)

    def acquire(self, lanes: Iterable[Lane | None]) -> LaneHold:
        return self.lanes.acquire(self, lanes)


class ByKey(Ordering):
    """Records of one key run one after another; records without a key are unordered."""

    lane_of: LaneOf | None = staticmethod(lambda message: message.key())

    def __init__(self, lanes: Lanes) -> None:
        super().__init__(lanes)
        self.lines: dict[Lane, deque[tuple[int, Message]]] = {}
        self.startable_in_lines = 0

    @property
    def oldest(self) -> Message | None:
        heads = [line[0][1] for line in self.lines.values()]
        first = self._queue.first
        return min(heads if first is None else [*heads, first], key=_offset, default=None)

    def waiting(self) -> Iterator[tuple[int, Message]]:
        return chain(super().waiting(), *self.lines.values())

    def line_of(self, lane: Lane | None) -> int:
        return len(self.lines.get(lane, ()))

    @property
    def longest_line(self) -> tuple[Lane, int] | None:
        if not self.lines:
            return None
        lane = max(self.lines, key=lambda each: len(self.lines[each]))
        return lane, len(self.lines[lane])

    @property
    def startable(self) -> int:
        return self._queue.records + self.startable_in_lines

    def take(self, count: int) -> Taken | None:
        left = self._leave(count)
        if left is None:
            return None
        run, lanes = left
        return run, self.lanes.enter(self, lanes)

    def take_at(self, place: Place, but: Callable[[Lane], bool]) -> Taken | None:
        self._form_lines()
        if not self.ready:
            return super().take_at(place, but)
        lanes = list(self.ready)
        first = place.of(len(lanes))
        near = chain(lanes[first : first + NEAR], reversed(lanes[max(0, first - NEAR) : first]))
        lane = next((each for each in near if not but(each)), None)
        if lane is None:
            return None
        line = self.lines[lane]
        seq, message = line.popleft()
        del self.ready[lane]
        self.startable_in_lines -= 1 + len(line)
        if not line:
            del self.lines[lane]
        return RecordRun.of([message], [seq]), self.lanes.enter(self, (lane,))

    def _form_lines(self) -> None:
        """Put all records in the line of their lane, so that the first of each is known."""
        queue, busy = self._queue, self.lanes.busy
        unordered: list[RecordRun] = []
        while (run := queue.take(queue.records)) is not None:
            without_key: list[int] = []
            for index, message in enumerate(run.messages):
                lane = message.key()
                if lane is None:
                    without_key.append(index)
                    continue
                line = self.lines.get(lane)
                if line is None:
                    line = self.lines[lane] = deque()
                line.append((run.seqs[index], message))
                if lane in self.ready:
                    self.startable_in_lines += 1
                elif lane not in busy:
                    busy.add(lane)
                    self.offer(lane)
            if without_key:
                messages = [run.messages[i] for i in without_key]
                unordered.append(RecordRun.of(messages, [run.seqs[i] for i in without_key]))
        for run in unordered:
            queue.append(run)

    def take_more(self, count: int, hold: LaneHold) -> RecordRun | None:
        if not self.startable:
            return None
        busy, own = self.lanes.busy, set(self.lanes.only(hold))
        busy -= own
        try:
            left = self._leave(count)
        finally:
            busy |= own
        if left is None:
            return None
        hold.merge(self.lanes.enter(self, [lane for lane in left[1] if lane not in own]))
        return left[0]

    def acquire(self, lanes: Iterable[Lane | None]) -> LaneHold:
        return self.lanes.acquire(self, lanes)

    def _leave(self, count: int) -> tuple[RecordRun, list[Lane]] | None:
        """Remove records whose lanes may be entered; return them with these lanes."""
        if self.ready:
            return self._take_ready(count)
        while True:
            run = self._queue.take(count)
            if run is None:
                return None
            keys: list[Lane] = list(map(_key_function(run.messages), run.messages))
            if self.singly or not self.lanes.busy.isdisjoint(keys):
                run, keys = self._queue_up(run, keys)
                if not keys:
                    continue
            return run, keys

    def _queue_up(self, run: RecordRun, keys: list[Lane]) -> tuple[RecordRun, list[Lane]]:
        """Put the records whose lane is busy in line; return the rest."""
        busy = self.lanes.busy.copy() if self.singly else self.lanes.busy
        free = []
        for index, key in enumerate(keys):
            if key in busy:
                line = self.lines.get(key)
                if line is None:
                    line = self.lines[key] = deque()
                line.append((run.seqs[index], run.messages[index]))
                if key in self.ready:
                    self.startable_in_lines += 1
            else:
                free.append(index)
                if self.singly and key is not None:
                    busy.add(key)
        rest = RecordRun.of([run.messages[i] for i in free], [run.seqs[i] for i in free])
        return rest, [keys[i] for i in free]

    def _take_ready(self, count: int) -> tuple[RecordRun, list[Lane]]:
        messages: list[Message] = []
        seqs: list[int] = []
        lanes: list[Lane] = []
        while self.ready and len(messages) < count:
            lane = next(iter(self.ready))
            line = self.lines[lane]
            lanes.append(lane)
            last = len(messages) + 1 if self.singly else count
            while line and len(messages) < last:
                seq, message = line.popleft()
                seqs.append(seq)
                messages.append(message)
                self.startable_in_lines -= 1
            del self.ready[lane]
            self.startable_in_lines -= len(line)
            if not line:
                del self.lines[lane]
        return RecordRun.of(messages, seqs), lanes

    def offer(self, lane: Lane) -> None:
        self.ready[lane] = None
        self.startable_in_lines += len(self.lines[lane])

    def withdraw(self, lane: Lane) -> None:
        del self.ready[lane]
        self.startable_in_lines -= len(self.lines[lane])

    def put_back(self, messages: list[Message], seqs: Sequence[int]) -> None:
        keyless_messages = []
        keyless_seqs = []
        for message, seq in zip(reversed(messages), reversed(seqs), strict=True):
            lane = message.key()
            if lane is None:
                keyless_messages.append(message)
                keyless_seqs.append(seq)
                continue
            line = self.lines.get(lane)
            if line is None:
                line = self.lines[lane] = deque()
            line.appendleft((seq, message))
            if lane in self.ready:
                self.startable_in_lines += 1
            elif lane not in self.lanes.busy:
                self.lanes.busy.add(lane)
                self.offer(lane)
        if keyless_messages:
            keyless_messages.reverse()
            keyless_seqs.reverse()
            super().put_back(keyless_messages, keyless_seqs)

    def clear(self) -> None:
        super().clear()
        offered = list(self.ready)
        self.lines.clear()
        self.ready.clear()
        self.startable_in_lines = 0
        for lane in offered:
            self.lanes.pass_on(lane, self)
