"""Which records may start now: without order, by key, or one after another.

An ordering has the records of one partition that are in the window and not started. Its promise: of
a lane at most one record is out (in a slice, waiting for its retry, being copied to another topic)
beside those that follow it in the very same slice, and the records of a lane leave in the order in
which they were delivered.

Which lanes are busy is known by ``Lanes``, which siblings share. Who of them waits longest goes
next is not promised: a copy was overtaken already.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import chain
from typing import Any

from window_consumer.engine.scheduling.lanes import NO_HOLD, Lane, LaneHold, LaneOf, Lanes
from window_consumer.engine.scheduling.record_queue import RecordRun, RunQueue
from window_consumer.model.record import Message

Taken = tuple[RecordRun, LaneHold]
"""Records that left their ordering, and the hold of the lanes that they keep busy."""


class Ordering(ABC):
    """The records of a partition that are waiting to start. Owner: poll thread."""

    lane_of: LaneOf | None = None

    def __init__(self, lanes: Lanes) -> None:
        self._queue = RunQueue()
        self.lanes = lanes
        self.lines: dict[Lane, Any] = {}
        """Who waits in line for a lane, in delivered order."""
        self.ready: dict[Lane, None] = {}
        """Lanes with a line that nobody holds and that were offered here, oldest first."""
        self.singly = False
        """Most calls return results: no record follows another one of its lane in a slice, where it
        would only be held until their acks."""
        lanes.join(self)

    @property
    def plain(self) -> Ordering:
        """The ordering itself, without a rate before it."""
        return self

    @property
    def waits(self) -> bool:
        """Something waits for nothing but its rate."""
        return False

    def add(self, run: RecordRun) -> None:
        """Take newly delivered records."""
        self._queue.append(run)

    @property
    def startable(self) -> int:
        """An upper bound of how many records could start now; 0 means none can."""
        return self._queue.records

    @property
    def oldest(self) -> Message | None:
        """The waiting record with the lowest offset, about: those taken back may hide it."""
        return self._queue.first

    @property
    def longest_line(self) -> tuple[Lane, int] | None:
        """The key behind whose records most others wait, and how many do; None where none does."""
        return None

    def line_of(self, lane: Lane | None) -> int:  # noqa: ARG002 - there are no lanes here
        """Return how many records of a lane wait for the one of it that is out."""
        return 0

    def waiting(self) -> Iterator[tuple[int, Message]]:
        """Yield the records that wait, with their sequence numbers: a walk, for people who look."""
        return self._queue.records_in_order()

    @abstractmethod
    def take(self, count: int) -> Taken | None:
        """Let at most ``count`` records start; None where none can.

        Returns them with the hold of their lanes.
        """

    @abstractmethod
    def take_more(self, count: int, hold: LaneHold) -> RecordRun | None:
        """Like ``take``, for whoever has this hold: later records of its lanes may join him.

        The hold has the lanes of these records, too, afterwards.
        """

    @abstractmethod
    def acquire(self, lanes: Iterable[Lane | None]) -> LaneHold:
        """Hold lanes of records that have left, for somebody else than their slice."""

    def put_back(self, messages: list[Message], seqs: Sequence[int]) -> None:
        """Take records back that left and have not started; they are first in line again.

        Their hold is released separately, before or after.
        """
        self._queue.put_in_front(RecordRun.of(messages, seqs))

    def offer(self, lane: Lane) -> None:
        """Let the first in line of a lane start: nobody holds it."""
        raise NotImplementedError  # nobody waits in line here

    def withdraw(self, lane: Lane) -> None:
        """Let the line of a lane wait on: somebody holds it again."""
        raise NotImplementedError  # as above

    def clear(self) -> None:
        """Forget everything that waits; what is out keeps its lanes."""
        self._queue.clear()

    def leave(self) -> None:
        """Forget everything, and release all lanes that records of this partition hold."""
        self.clear()
        self.lanes.leave(self)


class Unordered(Ordering):
    """Everything may start at any time."""

    def take(self, count: int) -> Taken | None:
        run = self._queue.take(count)
        return None if run is None else (run, NO_HOLD)

    def take_more(self, count: int, hold: LaneHold) -> RecordRun | None:  # noqa: ARG002 - there are no lanes
        return self._queue.take(count)

    def acquire(self, lanes: Iterable[Lane | None]) -> LaneHold:  # noqa: ARG002 - there are none
        return NO_HOLD


def _key_function(messages: list[Message]) -> Callable[[Message], Lane]:
    # The messages of a run come from one source, so they share a type; calling its function
    # through map costs 16 ns a record, a call of each message's method twice as much.
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

    def take_more(self, count: int, hold: LaneHold) -> RecordRun | None:
        if not self.lanes.only(hold):
            return None
        return self._queue.take(1 if self.singly else count)

    def acquire(self, lanes: Iterable[Lane | None]) -> LaneHold:
        return self.lanes.acquire(self, lanes)


class ByKey(Ordering):
    """Records of one key one after another; a record without a key has no order to keep."""

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
        """Let records leave whose lanes may be entered; return them with these lanes."""
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
        """Put the records whose lane is busy in line; return the others."""
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
