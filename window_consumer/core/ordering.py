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

from attrs import define

from window_consumer.core.slices import Lane, LaneOf
from window_consumer.model.record import Message


@define
class Run:
    """Records in delivered order with their sequence numbers and the payload's bytes."""

    messages: list[Message]
    seqs: Sequence[int]
    bytes: int

    @classmethod
    def of(cls, messages: list[Message], seqs: Sequence[int]) -> Run:
        """Make a run, measuring it."""
        return cls(messages, seqs, sum(map(len, messages)))

    def split(self, count: int) -> tuple[Run, Run]:
        """Return the first ``count`` records and the rest."""
        head = Run.of(self.messages[:count], self.seqs[:count])
        return head, Run(self.messages[count:], self.seqs[count:], self.bytes - head.bytes)

    def __len__(self) -> int:
        return len(self.messages)


@define
class Portion:
    """Records that leave together, and the lanes that they keep busy until released."""

    run: Run
    lanes: Sequence[Lane]


class Ordering(ABC):
    """The records of a partition that are waiting to start. Owner: poll thread."""

    lane_of: LaneOf | None = None

    def __init__(self) -> None:
        self._runs: deque[Run] = deque()
        self.waiting = 0
        """Records that have not started, whether or not their lane is free."""

    def add(self, run: Run) -> None:
        """Take newly delivered records."""
        self._runs.append(run)
        self.waiting += len(run)

    @property
    def startable(self) -> int:
        """An upper bound of how many records could start now; 0 means none can."""
        return self.waiting

    @abstractmethod
    def take(self, count: int) -> Portion | None:
        """Let at most ``count`` records start; None where none can."""

    @abstractmethod
    def release(self, lanes: Iterable[Lane], but: Collection[Lane] = ()) -> None:
        """Free lanes, except those in ``but``: a record of theirs is still on its way."""

    @abstractmethod
    def put_back(self, messages: list[Message], seqs: Sequence[int]) -> None:
        """Take records back that left and have not started; they are first in line again.

        Their lanes are released separately, before or after.
        """

    def clear(self) -> None:
        """Forget everything that waits."""
        self._runs.clear()
        self.waiting = 0

    def _next_run(self, count: int) -> Run | None:
        """Remove and return up to ``count`` records from the front, joining adjacent runs."""
        if not self._runs:
            return None
        run = self._runs.popleft()
        if len(run) > count:
            run, rest = run.split(count)
            self._runs.appendleft(rest)
        while (
            self._runs and len(run) + len(self._runs[0]) <= count and _adjacent(run, self._runs[0])
        ):
            joined = self._runs.popleft()
            run = Run(
                run.messages + joined.messages,
                range(run.seqs[0], joined.seqs[-1] + 1),
                run.bytes + joined.bytes,
            )
        self.waiting -= len(run)
        return run

    def _put_run_back(self, run: Run) -> None:
        self._runs.appendleft(run)
        self.waiting += len(run)


def _adjacent(run: Run, following: Run) -> bool:
    return (
        isinstance(run.seqs, range)
        and isinstance(following.seqs, range)
        and run.seqs.stop == following.seqs.start
    )


class Unordered(Ordering):
    """Everything may start at any time."""

    def take(self, count: int) -> Portion | None:
        run = self._next_run(count)
        return None if run is None else Portion(run, ())

    def release(self, lanes: Iterable[Lane], but: Collection[Lane] = ()) -> None:
        """Nothing to do: there are no lanes."""

    def put_back(self, messages: list[Message], seqs: Sequence[int]) -> None:
        self._put_run_back(Run.of(messages, seqs))


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
        return 0 if self._busy else self.waiting

    def take(self, count: int) -> Portion | None:
        if self._busy:
            return None
        run = self._next_run(count)
        if run is None:
            return None
        self._busy = True
        return Portion(run, (_WHOLE_PARTITION,))

    def release(self, lanes: Iterable[Lane], but: Collection[Lane] = ()) -> None:
        if _WHOLE_PARTITION in lanes and not but:
            self._busy = False

    def put_back(self, messages: list[Message], seqs: Sequence[int]) -> None:
        self._put_run_back(Run.of(messages, seqs))


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
        self._in_lines = 0
        self._startable_in_lines = 0

    lane_of: LaneOf | None = staticmethod(lambda message: message.key())

    @property
    def startable(self) -> int:
        return self.waiting - self._in_lines + self._startable_in_lines

    def take(self, count: int) -> Portion | None:
        if self._ready:
            return self._take_ready(count)
        while True:
            run = self._next_run(count)
            if run is None:
                return None
            keys: list[Lane] = list(map(_key_function(run.messages), run.messages))
            if not self._busy.isdisjoint(keys):
                run, keys = self._queue_up(run, keys)
                if not keys:
                    continue
            self._busy.update(keys)
            self._busy.discard(None)
            return Portion(run, keys)

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
        queued = len(keys) - len(free)
        self.waiting += queued
        self._in_lines += queued
        rest = Run.of([run.messages[i] for i in free], [run.seqs[i] for i in free])
        return rest, [keys[i] for i in free]

    def _take_ready(self, count: int) -> Portion:
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
        self.waiting -= len(messages)
        self._in_lines -= len(messages)
        return Portion(Run.of(messages, seqs), lanes)

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
            self.waiting += 1
            self._in_lines += 1
            if lane in self._ready:
                self._startable_in_lines += 1
            elif lane not in self._busy:
                self._busy.add(lane)
                self._ready[lane] = None
                self._startable_in_lines += len(line)
        if keyless_messages:
            keyless_messages.reverse()
            keyless_seqs.reverse()
            self._put_run_back(Run.of(keyless_messages, keyless_seqs))

    def clear(self) -> None:
        super().clear()
        self._busy.clear()
        self._lines.clear()
        self._ready.clear()
        self._in_lines = self._startable_in_lines = 0
