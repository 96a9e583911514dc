"""Which records may start now: without order, by key, or one after another.

An ordering holds the records of one partition that are in the window and not started, and knows
which lanes are busy. Its promise: of a lane at most one record is out (in a slice, waiting for
its retry, being copied to another topic) beside those that follow it in the very same slice, and
the records of a lane leave in the order in which they were delivered.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Collection, Iterable, Sequence

from window_consumer.core.runs import Run, RunQueue
from window_consumer.core.slices import Lane, LaneOf
from window_consumer.model.record import Message


class Ordering(ABC):
    """The records of a partition that are waiting to start. Owner: poll thread."""

    lane_of: LaneOf | None = None

    def __init__(self) -> None:
        self._queue = RunQueue()

    def add(self, run: Run) -> None:
        """Take newly delivered records."""
        self._queue.append(run)

    @property
    def startable(self) -> int:
        """An upper bound of how many records could start now; 0 means none can."""
        return self._queue.records

    @abstractmethod
    def take(self, count: int) -> tuple[Run, Sequence[Lane]] | None:
        """Let at most ``count`` records start; None where none can.

        Returns them with the lanes that they keep busy until released.
        """

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


class Unordered(Ordering):
    """Everything may start at any time."""

    def take(self, count: int) -> tuple[Run, Sequence[Lane]] | None:
        run = self._queue.take(count)
        return None if run is None else (run, ())

    def release(self, lanes: Iterable[Lane], but: Collection[Lane] = ()) -> None:
        """Nothing to do: there are no lanes."""


def _key_function(messages: list[Message]) -> Callable[[Message], Lane]:
    # The messages of a run come from one source, so they share a type; calling its function
    # through map costs 16 ns a record, a call of each message's method twice as much.
    return type(messages[0]).key


_WHOLE_PARTITION: Lane = "partition"


class ByPartition(Ordering):
    """One slice at a time: every record waits for the one before it."""

    lane_of: LaneOf | None = staticmethod(lambda _message: _WHOLE_PARTITION)

    def __init__(self) -> None:
        super().__init__()
        self._busy = False

    @property
    def startable(self) -> int:
        return 0 if self._busy else self._queue.records

    def take(self, count: int) -> tuple[Run, Sequence[Lane]] | None:
        if self._busy:
            return None
        run = self._queue.take(count)
        if run is None:
            return None
        self._busy = True
        return run, (_WHOLE_PARTITION,)

    def release(self, lanes: Iterable[Lane], but: Collection[Lane] = ()) -> None:
        if _WHOLE_PARTITION in lanes and not but:
            self._busy = False


class ByKey(Ordering):
    """Records of one key one after another; a record without a key has no order to keep."""

    def __init__(self) -> None:
        super().__init__()
        self._busy: set[Lane] = set()
        """Lanes that a new record may not enter: a record is out, or others wait in line."""
        self._lines: dict[Lane, deque[tuple[int, Message]]] = {}
        """Who waits in each busy lane, in delivered order."""
        self._ready: dict[Lane, None] = {}
        """Lanes with a line whose last record has come back, oldest first."""
        self._startable_in_lines = 0

    lane_of: LaneOf | None = staticmethod(lambda message: message.key())

    @property
    def startable(self) -> int:
        return self._queue.records + self._startable_in_lines

    def take(self, count: int) -> tuple[Run, Sequence[Lane]] | None:
        if self._ready:
            return self._take_ready(count)
        while True:
            run = self._queue.take(count)
            if run is None:
                return None
            keys: list[Lane] = list(map(_key_function(run.messages), run.messages))
            if not self._busy.isdisjoint(keys):
                run, keys = self._queue_up(run, keys)
                if not keys:
                    continue
            self._busy.update(keys)
            self._busy.discard(None)
            return run, keys

    def _queue_up(self, run: Run, keys: list[Lane]) -> tuple[Run, list[Lane]]:
        """Put the records whose lane is busy in line; return the others."""
        busy = self._busy
        free = []
        for index, key in enumerate(keys):
            if key in busy:
                line = self._lines.get(key)
                if line is None:
                    line = self._lines[key] = deque()
                line.append((run.seqs[index], run.messages[index]))
                if key in self._ready:
                    self._startable_in_lines += 1
            else:
                free.append(index)
        rest = Run.of([run.messages[i] for i in free], [run.seqs[i] for i in free])
        return rest, [keys[i] for i in free]

    def _take_ready(self, count: int) -> tuple[Run, Sequence[Lane]]:
        messages: list[Message] = []
        seqs: list[int] = []
        lanes: list[Lane] = []
        while self._ready and len(messages) < count:
            lane = next(iter(self._ready))
            line = self._lines[lane]
            lanes.append(lane)
            while line and len(messages) < count:
                seq, message = line.popleft()
                seqs.append(seq)
                messages.append(message)
                self._startable_in_lines -= 1
            del self._ready[lane]
            self._startable_in_lines -= len(line)
            if not line:
                del self._lines[lane]
        return Run.of(messages, seqs), lanes

    def release(self, lanes: Iterable[Lane], but: Collection[Lane] = ()) -> None:
        if not self._lines and not but:
            self._busy.difference_update(lanes)
            return
        for lane in lanes:
            if lane in but or lane is None:
                continue
            line = self._lines.get(lane)
            if line is None:
                self._busy.discard(lane)
            elif lane not in self._ready:
                self._ready[lane] = None
                self._startable_in_lines += len(line)

    def put_back(self, messages: list[Message], seqs: Sequence[int]) -> None:
        keyless_messages = []
        keyless_seqs = []
        for message, seq in zip(reversed(messages), reversed(seqs), strict=True):
            lane = message.key()
            if lane is None:
                keyless_messages.append(message)
                keyless_seqs.append(seq)
                continue
            line = self._lines.get(lane)
            if line is None:
                line = self._lines[lane] = deque()
            line.appendleft((seq, message))
            if lane in self._ready:
                self._startable_in_lines += 1
            elif lane not in self._busy:
                self._busy.add(lane)
                self._ready[lane] = None
                self._startable_in_lines += len(line)
        if keyless_messages:
            keyless_messages.reverse()
            keyless_seqs.reverse()
            super().put_back(keyless_messages, keyless_seqs)

    def clear(self) -> None:
        super().clear()
        self._busy.clear()
        self._lines.clear()
        self._ready.clear()
        self._startable_in_lines = 0
