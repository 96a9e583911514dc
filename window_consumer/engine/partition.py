"""One assignment of one partition: its window, its order, its buffer and its commit state."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from itertools import chain
from typing import TYPE_CHECKING

from window_consumer.engine.commits import CommitState
from window_consumer.engine.deliveries import Holes
from window_consumer.engine.guards.backpressure import MemoryBudget
from window_consumer.engine.offsets import (
    after,
    is_contiguous,
    runs_of,
)
from window_consumer.engine.partition_state import (
    STOPS_EVERYTHING,
    STOPS_INTAKE,
    STOPS_STARTS,
    HoldReason,
    PartitionState,
)
from window_consumer.engine.retry.policy import FailedRecord
from window_consumer.engine.retry.retry_topics import RetryTopicLevel
from window_consumer.engine.scheduling.ordering import Ordering
from window_consumer.engine.scheduling.record_queue import RecordRun
from window_consumer.engine.window import Window
from window_consumer.model.outcome import Outcome
from window_consumer.model.record import (
    Message,
    TopicPartition,
)

if TYPE_CHECKING:
    from window_consumer.engine.lost_partitions import PartitionOutcomes

FindStrays = Callable[["Partition", RecordRun], Collection[int]]
"""Takes the strays of a run on, and returns their sequence numbers; normally there are none."""

DUE_TOGETHER_S = 0.02
"""Copies whose due times differ by less start together: one by one they would cost a slice each."""


class Partition:
    """Everything about one partition from its assignment (an epoch) to its end.

    Owner: poll thread.
    """

    find_strays: FindStrays | None = None
    """Sorts out copies that belong elsewhere, see ``lane_ownership``; None where none can."""

    kept: PartitionOutcomes | None = None
    """Set when it is lost: what had finished, in case that it comes back, see ``kept_outcomes``."""
    recalled: PartitionOutcomes | None = None
    """What had finished before it was lost and need not run again; set while observers hear of the
    assignment."""

    def __init__(  # noqa: PLR0913 - its parts; made in one place
        self,
        name: TopicPartition,
        epoch: int,
        window: Window,
        ordering: Ordering,
        commit: CommitState,
        budget: MemoryBudget,
        retry_level: RetryTopicLevel,
        finished_before: Sequence[range] = (),
    ):
        self.name = name
        self.retry_level = retry_level
        self.siblings: list[Partition] = []
        """The other partitions with the same lanes: of the source topic, and of its copies."""
        self.epoch = epoch
        self.window = window
        self.ordering = ordering
        self.commit = commit
        self.position = 0
        """The client's position: beyond the last delivered record, transaction markers included."""
        self.log_end: int | None = None
        """One past the log's last offset, as far as the client has heard."""
        self.holes = Holes()
        self.bytes = 0
        """Payload of unfinished and buffered records."""
        self._budget = budget
        self.buffer: deque[tuple[float, list[Message]]] = deque()
        """Delivered while the window was full, or not due yet: when they are due, and who."""
        self.buffered = 0
        self.failed: dict[int, FailedRecord] = {}
        """By sequence number: who failed and has no final outcome."""
        self.slices = 0
        """Slices that are out."""
        self.publishing = 0
        """Copies that are not acked, and calls whose results are not."""
        self.dispatched_at = float("-inf")
        self.state = PartitionState.ACTIVE
        self.holds: frozenset[HoldReason] = frozenset()
        """Why it is held back; normally there is no reason."""
        # What follows from state and holds is asked for each slice: computed when they change.
        self.is_active = True
        """It takes records in and starts them, unless something holds it back."""
        self.owned = True
        """It was not given up: results for it count."""
        self.may_start = True
        """No reason keeps its records from starting by themselves."""
        self.may_take_in = True
        """No reason keeps delivered records in the buffer."""
        self.paused = False
        """The client fetches nothing for it, see ``backpressure``."""
        self.refused_records = False
        """Some came in while it was being revoked: the client's position is beyond them."""
        self.is_tried = False
        """When it was to be given up something had started, and all suspects had passed."""
        self.held_calls: deque[FailedRecord] = deque()
        """Whose next call was due while it was held back."""
        self.unreadable: set[int] = set()
        """Offsets of records that have not left yet and whose headers are lost."""
        self._finished_before = deque(finished_before)

    @property
    def busy(self) -> bool:
        """Something of this partition is running or waits for an ack."""
        return bool(self.slices or self.publishing)

    @property
    def is_suspended(self) -> bool:
        """It starts nothing at all, suspects included."""
        return not self.holds.isdisjoint(STOPS_EVERYTHING)

    def set_hold(self, reason: HoldReason, *, held: bool) -> None:
        """Let a reason hold it back, or no more."""
        if held == (reason in self.holds):
            return
        self.holds ^= {reason}
        self.may_start = self.holds.isdisjoint(STOPS_STARTS)
        self.may_take_in = self.holds.isdisjoint(STOPS_INTAKE)

    def revoke(self) -> None:
        """Take nothing in and start nothing any more: it is about to be given up."""
        self._enter(PartitionState.REVOKING)

    def _enter(self, state: PartitionState) -> None:
        self.state = self.state.to(state)
        self.is_active = state is PartitionState.ACTIVE
        self.owned = self.is_active or state is PartitionState.REVOKING

    @property
    def idle(self) -> bool:
        """Everything that was delivered is finished."""
        return not (self.window.open or self.buffered)

    @property
    def first_unfinished(self) -> int | None:
        """The offset of the first record without a final outcome, None where there is none."""
        window = self.window
        if window.open:
            first = next(cell for cell in window.cells if cell.open)
            return window.offsets.offset_of(first.first_open_seq())
        return _offset(self.buffer[0][1][0]) if self.buffer else None

    def unseen(self, messages: list[Message]) -> list[Message]:
        """Return the messages that were not delivered before in this epoch (normally all)."""
        expected = self.next_delivery
        if messages[0].offset() >= expected:
            return messages
        return [m for m in messages if m.offset() >= expected]

    def is_beyond_log(self, messages: list[Message]) -> bool:
        """Tell whether records leave a hole and lie beyond the log's end, as far as it is known."""
        leaves_hole = messages[0].offset() > self.next_delivery
        return leaves_hole and self.log_end is not None and messages[-1].offset() >= self.log_end

    @property
    def next_delivery(self) -> int:
        """The lowest offset that has not been delivered."""
        if self.buffer:
            return after(_offset(self.buffer[-1][1][-1]))
        return self.window.offsets.next_offset

    def record_unreadable(self, offsets: Iterable[int], unseen: Sequence[Message]) -> None:
        """Note which of the records that come in have lost their headers."""
        first = _offset(unseen[0])
        self.unreadable.update(each for each in offsets if each >= first)

    def take_in(self, messages: list[Message], size: int, now: float) -> int:
        """Take new records, ``size`` bytes of payload: into the window while it has room.

        The others wait in the buffer. Returns how many an earlier assignment had finished.
        """
        if len(messages) <= self.window.room and not self.buffered and self.may_take_in:
            return self._admit(messages, size, now)
        self.buffer.append((now, messages))
        self.buffered += len(messages)
        return self._refill(now)

    def take_in_later(self, messages: list[Message], now: float, wall_ms: float) -> int:
        """Take new copies that have to wait until they are due; returns as ``take_in`` does.

        Those that are due within a few milliseconds of each other wait for the last of them.
        """
        dues = [now + self.retry_level.wait_s(message, wall_ms) for message in messages]
        start = 0
        for stop in range(1, len(dues) + 1):
            if stop == len(dues) or abs(dues[stop] - dues[start]) > DUE_TOGETHER_S:
                self.buffer.append((max(dues[start:stop]), messages[start:stop]))
                start = stop
        self.buffered += len(messages)
        return self._refill(now)

    @property
    def has_started(self) -> bool:
        """Something of it has gone to a slot in this assignment."""
        return self.dispatched_at > float("-inf")

    @property
    def is_full(self) -> bool:
        """Nothing more comes in before something is finished."""
        no_room = self.paused or not self.window.room
        return (
            no_room
            or HoldReason.METADATA_FULL in self.holds
            or self._budget.used >= self._budget.limit
        )

    @property
    def next_due(self) -> float:
        """When the first buffered record is due; infinity where none waits."""
        return self.buffer[0][0] if self.buffer else float("inf")

    def slide(self, now: float) -> int:
        """Let go of what is complete at the window's start, and refill the window.

        Returns how many of the records that came in an earlier assignment had finished.
        """
        self.window.slide(now)
        return self._refill(now) if self.buffered else 0

    def _refill(self, now: float) -> int:
        earlier = 0
        while self.buffered and self.is_active and self.may_take_in:
            room = self.window.room
            if not room or self.next_due > now:
                break
            messages = self._take_from_buffer(room)
            earlier += self._admit(messages, sum(map(len, messages)), now)
        return earlier

    def _take_from_buffer(self, room: int) -> list[Message]:
        due, messages = self.buffer.popleft()
        if len(messages) > room:
            self.buffer.appendleft((due, messages[room:]))
            messages = messages[:room]
        self.buffered -= len(messages)
        return messages

    def _admit(self, messages: list[Message], size: int, now: float) -> int:
        """Take records into the window, which has room, and let them wait to start."""
        first, last = _offset(messages[0]), _offset(messages[-1])
        if is_contiguous(first, last, len(messages)) and not self._finished_before:
            seq = self.window.append(range(first, after(last)), now)
            self._let_start(RecordRun(messages, range(seq, seq + len(messages)), size))
            return 0
        offsets = [_offset(message) for message in messages]
        position = finished = 0
        for run in runs_of(offsets):
            for piece, outcome in self._pieces(run):
                stop = position + len(piece)
                seq = self.window.append(piece, now, outcome)
                if outcome is Outcome.OPEN:
                    part = messages[position:stop]
                    self._let_start(RecordRun.of(part, range(seq, seq + len(part))))
                else:
                    finished += len(piece)
                    self.let_go(sum(map(len, messages[position:stop])))
                    self.unreadable.difference_update(piece if self.unreadable else ())
                    self.commit.changed = True
                position = stop
        if finished:
            # Nothing else may be left to finish that would let the window slide.
            self.window.slide(now)
        return finished

    def _let_start(self, run: RecordRun) -> None:
        """Let records wait to start, strays left out."""
        if self.find_strays is None or not (strays := self.find_strays(self, run)):
            self.ordering.add(run)
            return
        for message, seq in zip(run.messages, run.seqs, strict=True):
            if seq not in strays:
                self.ordering.add(RecordRun.of([message], range(seq, seq + 1)))

    def finish(self, seqs: Sequence[int], outcome: Outcome, size: int, now: float) -> None:
        """Give records their final outcome and let go of their ``size`` bytes."""
        self.window.finish(seqs, outcome, now)
        self.let_go(size)
        self.commit.changed = True

    def on_first_failure(self, failed: FailedRecord) -> None:
        """Note that a record has failed for the first time: its lane waits for it."""
        self.failed[failed.seq] = failed
        failed.hold = self.ordering.acquire((failed.lane,))

    def on_failure_resolved(self, seq: int) -> None:
        """Note that a record that failed has its final outcome."""
        self.failed.pop(seq).hold.release()

    def finished_ranges(self) -> Iterator[range]:
        """Yield the offsets beyond ``window.next_offset`` that are finished, in order.

        What an earlier assignment finished counts although it has not been delivered yet: a
        partition may be taken away before its first record arrives.
        """
        last: range | None = None
        for each in chain(self.window.finished_ranges(), self._not_delivered_again()):
            if last is not None and last.stop == each.start:
                last = range(last.start, each.stop)
                continue
            if last is not None:
                yield last
            last = each
        if last is not None:
            yield last

    def _not_delivered_again(self) -> Iterator[range]:
        delivered = self.window.offsets.next_offset
        for each in self._finished_before:
            if each.stop > delivered:
                yield range(max(each.start, delivered), each.stop)

    def waiting(self, now: float) -> int:
        """Return how many records could run if nothing held the partition back, roughly."""
        due = self.buffered if self.next_due <= now else 0
        return self.window.open + due

    def hold(self, size: int) -> None:
        """Account for ``size`` bytes that came in."""
        self.bytes += size
        self._budget.used += size

    def join(self, siblings: Sequence[Partition]) -> None:
        """Note who shares its lanes, and is woken when some are free."""
        self.siblings.extend(siblings)
        for sibling in siblings:
            sibling.siblings.append(self)

    def let_go(self, size: int) -> None:
        """Account for ``size`` bytes that are not needed any more."""
        self.bytes -= size
        self._budget.used -= size

    def give_up(self) -> None:
        """Forget what waits; what still runs will be ignored."""
        is_revoking = self.state is PartitionState.REVOKING
        self._enter(PartitionState.REVOKED if is_revoking else PartitionState.LOST)
        self.let_go(self.bytes)
        self.ordering.leave()
        for sibling in self.siblings:
            sibling.siblings.remove(self)
        self.siblings.clear()
        self.buffer.clear()
        self.failed.clear()
        self.held_calls.clear()
        self.buffered = 0

    def _pieces(self, run: range) -> Iterator[tuple[range, Outcome]]:
        """Split delivered offsets into those finished before this assignment and the others."""
        start = run.start
        while start < run.stop:
            while self._finished_before and self._finished_before[0].stop <= start:
                self._finished_before.popleft()
            finished = (
                self._finished_before[0] if self._finished_before else range(run.stop, run.stop)
            )
            if finished.start > start:
                stop = min(finished.start, run.stop)
                yield range(start, stop), Outcome.OPEN
            else:
                stop = min(finished.stop, run.stop)
                yield range(start, stop), Outcome.EARLIER
            start = stop


def _offset(message: Message) -> int:
    return int(message.offset())
