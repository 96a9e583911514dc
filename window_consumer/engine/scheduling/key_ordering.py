"""An ordering in which the records of one key run one after another.

Records wait in the queue as delivered. Those whose key is busy at their turn move to the line of
their key. So a run without a busy key costs one look at its keys.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import chain

from window_consumer.engine.scheduling.lanes import Lane, LaneHold, LaneOf, Lanes
from window_consumer.engine.scheduling.ordering import Ordering, Taken
from window_consumer.engine.scheduling.record_queue import Place, RecordRun
from window_consumer.model.record import Message

NEAR = 200
"""How many lanes beside a place are searched for one that may be taken."""


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
        """Put all records in the lines of their lanes, so that the first of each is known."""
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
        """Remove records whose lanes may be entered; return them with their lanes."""
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
        """Put the records whose lanes are busy in line; return the rest."""
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


def _key_function(messages: list[Message]) -> Callable[[Message], Lane]:
    # All messages of a run come from one source, so they share a type. Its function through map
    # costs 16 ns a record; calling each message's method costs twice as much.
    return type(messages[0]).key


def _offset(message: Message) -> int:
    return int(message.offset())
