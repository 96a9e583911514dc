"""Which records may start now: without order, by key, or one after another.

An ordering holds the records of one partition that are in the window and not started, and knows
which lanes are busy. Its promise: of a lane at most one record is out (in a slice, waiting for
its retry, being copied to another topic) beside those that follow it in the very same slice, and
the records of a lane leave in the order in which they were delivered.

The partition of a source topic and those of its copies have their lanes in common: their orderings
*join*, and a lane that is busy in one is busy in all. Among them, who waits longest goes next is
not promised: a copy was overtaken already.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from itertools import chain

from window_consumer.engine.scheduling.record_queue import (
    Run,
    RunQueue,
)
from window_consumer.engine.scheduling.slices import (
    Lane,
    LaneOf,
)
from window_consumer.model.record import Message


class Ordering(ABC):
    """The records of a partition that are waiting to start. Owner: poll thread."""

    lane_of: LaneOf | None = None

    def __init__(self) -> None:
        self._queue = RunQueue()
        self.singly = False
        """Most calls return results: no record follows another one of its lane in a slice, where it
        would only be held until their acks."""

    @property
    def plain(self) -> Ordering:
        """The ordering itself, without a rate before it."""
        return self

    @property
    def waits(self) -> bool:
        """Something waits for nothing but its rate."""
        return False

    def add(self, run: Run) -> None:
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
    def take(self, count: int) -> tuple[Run, Sequence[Lane]] | None:
        """Let at most ``count`` records start; None where none can.

        Returns them with the lanes that they keep busy until released.
        """

    @abstractmethod
    def take_more(self, count: int, lanes: Sequence[Lane]) -> tuple[Run, Sequence[Lane]] | None:
        """Like ``take``, for whoever holds these lanes: their later records may join him."""

    @abstractmethod
    def release(self, lanes: Iterable[Lane], but: Collection[Lane] = ()) -> None:
        """Free lanes, except those in ``but``: a record of theirs is still on its way."""

    def put_back(self, messages: list[Message], seqs: Sequence[int]) -> None:
        """Take records back that left and have not started; they are first in line again.

        Their lanes are released separately, before or after.
        """
        self._queue.put_in_front(Run.of(messages, seqs))

    def clear(self) -> None:
        """Forget everything that waits."""
        self._queue.clear()

    @abstractmethod
    def join(self, others: Sequence[Ordering]) -> None:
        """Share the lanes with these orderings, which share theirs with each other already."""

    def leave(self) -> None:
        """Forget everything, busy lanes too, and share nothing any more."""
        self.clear()


class Unordered(Ordering):
    """Everything may start at any time."""

    def take(self, count: int) -> tuple[Run, Sequence[Lane]] | None:
        run = self._queue.take(count)
        return None if run is None else (run, ())

    def take_more(self, count: int, lanes: Sequence[Lane]) -> tuple[Run, Sequence[Lane]] | None:  # noqa: ARG002 - there are no lanes
        return self.take(count)

    def release(self, lanes: Iterable[Lane], but: Collection[Lane] = ()) -> None:
        """Nothing to do: there are no lanes."""

    def join(self, others: Sequence[Ordering]) -> None:
        """Nothing to do: there are no lanes."""


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

    def __init__(self) -> None:
        super().__init__()
        self.busy = False
        self.others: list[ByPartition] = []

    @property
    def startable(self) -> int:
        return 0 if self.is_busy else self._queue.records

    def line_of(self, lane: Lane | None) -> int:
        return 0 if lane is None else self._queue.records

    @property
    def is_busy(self) -> bool:
        """A record is out, of this partition or of one with the same lane."""
        return self.busy or any(other.busy for other in self.others)

    def take(self, count: int) -> tuple[Run, Sequence[Lane]] | None:
        if self.is_busy:
            return None
        run = self._queue.take(1 if self.singly else count)
        if run is None:
            return None
        self.busy = True
        return run, (_WHOLE_PARTITION,)

    def take_more(self, count: int, lanes: Sequence[Lane]) -> tuple[Run, Sequence[Lane]] | None:
        if lanes:
            self.busy = False
        try:
            return self.take(count)
        finally:
            self.busy = self.busy or bool(lanes)

    def release(self, lanes: Iterable[Lane], but: Collection[Lane] = ()) -> None:
        if _WHOLE_PARTITION in lanes and not but:
            self.busy = False

    def join(self, others: Sequence[Ordering]) -> None:
        for other in others:
            if isinstance(other, ByPartition):
                self.others.append(other)
                other.others.append(self)

    def leave(self) -> None:
        self.clear()
        self.busy = False
        for other in self.others:
            other.others.remove(self)
        self.others.clear()


class ByKey(Ordering):
    """Records of one key one after another; a record without a key has no order to keep."""

    def __init__(self) -> None:
        super().__init__()
        self.busy: set[Lane] = set()
        """Lanes that a new record may not enter: a record is out, or others wait in line."""
        self.lines: dict[Lane, deque[tuple[int, Message]]] = {}
        """Who waits in each busy lane, in delivered order."""
        self.ready: dict[Lane, None] = {}
        """Lanes with a line whose last record has come back, oldest first."""
        self.startable_in_lines = 0
        self.others: list[ByKey] = []
        self.out: set[Lane] = set()
        """Lanes of which a record is out; kept only while lanes are shared."""

    lane_of: LaneOf | None = staticmethod(lambda message: message.key())

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

    def take(self, count: int) -> tuple[Run, Sequence[Lane]] | None:
        if self.ready:
            return self._take_ready(count)
        while True:
            run = self._queue.take(count)
            if run is None:
                return None
            keys: list[Lane] = list(map(_key_function(run.messages), run.messages))
            if self.singly or any(not each.busy.isdisjoint(keys) for each in (self, *self.others)):
                run, keys = self._queue_up(run, keys)
                if not keys:
                    continue
            self.busy.update(keys)
            self.busy.discard(None)
            self._note_out(keys)
            return run, keys

    def take_more(self, count: int, lanes: Sequence[Lane]) -> tuple[Run, Sequence[Lane]] | None:
        if not self.startable:
            return None
        # Who stands in line of one of the lanes waits for somebody else's record.
        own = [lane for lane in lanes if lane is not None and lane not in self.lines]
        self.busy.difference_update(own)
        try:
            return self.take(count)
        finally:
            self.busy.update(own)

    def _note_out(self, lanes: Iterable[Lane]) -> None:
        if self.others:
            self.out.update(lanes)
            self.out.discard(None)

    def _queue_up(self, run: Run, keys: list[Lane]) -> tuple[Run, list[Lane]]:
        """Put the records whose lane is busy in line; return the others."""
        busy = self.busy
        if self.others:
            busy = busy.union(*(other.busy.intersection(keys) for other in self.others))
        elif self.singly:
            busy = busy.copy()
        free = []
        for index, key in enumerate(keys):
            if key in busy:
                line = self.lines.get(key)
                if line is None:
                    line = self.lines[key] = deque()
                    self.busy.add(key)
                line.append((run.seqs[index], run.messages[index]))
                if key in self.ready:
                    self.startable_in_lines += 1
            else:
                free.append(index)
                if self.singly and key is not None:
                    busy.add(key)
        rest = Run.of([run.messages[i] for i in free], [run.seqs[i] for i in free])
        return rest, [keys[i] for i in free]

    def _take_ready(self, count: int) -> tuple[Run, Sequence[Lane]]:
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
        self._note_out(lanes)
        return Run.of(messages, seqs), lanes

    def release(self, lanes: Iterable[Lane], but: Collection[Lane] = ()) -> None:
        if not self.lines and not but and not self.others:
            self.busy.difference_update(lanes)
            return
        for lane in lanes:
            if lane in but or lane is None:
                continue
            self.out.discard(lane)
            if lane not in self.lines:
                self.busy.discard(lane)
            self.hand_on(lane)

    def hand_on(self, lane: Lane) -> None:
        """Let the next in a free lane start, whosever line it stands in.

        Ours comes last, so that lines take turns.
        """
        for each in (*self.others, self):
            line = each.lines.get(lane)
            if line is not None:
                if lane not in each.ready:
                    each.ready[lane] = None
                    each.startable_in_lines += len(line)
                return

    def is_out(self, lane: Lane) -> bool:
        """Tell whether another ordering has a record of a lane out, or is about to."""
        return any(lane in each.out or lane in each.ready for each in self.others)

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
            elif lane not in self.busy:
                self.busy.add(lane)
                if not any(lane in other.busy for other in self.others):
                    self.ready[lane] = None
                    self.startable_in_lines += len(line)
        if keyless_messages:
            keyless_messages.reverse()
            keyless_seqs.reverse()
            super().put_back(keyless_messages, keyless_seqs)

    def clear(self) -> None:
        super().clear()
        free = self.busy.intersection(self.ready) if self.others else self.busy.copy()
        self.busy -= free
        self.lines.clear()
        self.ready.clear()
        self.startable_in_lines = 0
        for lane in free if self.others else ():
            self.hand_on(lane)

    def join(self, others: Sequence[Ordering]) -> None:
        for other in others:
            if isinstance(other, ByKey):
                other.begin_to_share()
                self.others.append(other)
                other.others.append(self)

    def begin_to_share(self) -> None:
        """Find out which lanes are out, before the first other ordering asks."""
        if not self.others:
            self.out = self.busy.difference(self.ready)

    def leave(self) -> None:
        held = self.busy.copy()
        self.lines.clear()
        self.clear()
        self.busy.clear()
        self.out.clear()
        others, self.others = self.others, []
        for other in others:
            other.others.remove(self)
        for lane in held if others else ():
            heir = others[0]
            if lane not in heir.out and lane not in heir.ready and not heir.is_out(lane):
                heir.hand_on(lane)
