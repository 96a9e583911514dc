"""One assignment of one partition: its window, ordering, buffer and commit state."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING

from window_consumer.engine.commits.commit_state import CommitState
from window_consumer.engine.deliveries import DeliveryBuffer, Holes
from window_consumer.engine.guards.backpressure import MemoryBudget
from window_consumer.engine.offsets import FinishedBefore, after, is_contiguous, runs_of
from window_consumer.engine.partition_state import HoldReason, PartitionPermissions, PartitionState
from window_consumer.engine.retry.retry_topics import RetryTopicLevel
from window_consumer.engine.scheduling.ordering import Ordering
from window_consumer.engine.scheduling.record_queue import RecordRun
from window_consumer.engine.window import Window
from window_consumer.model.outcome import Outcome
from window_consumer.model.record import AssignmentEpoch, Message, TopicPartition

if TYPE_CHECKING:
    from window_consumer.engine.commits.lost_partitions import PartitionOutcomes

FindStrays = Callable[["Partition", RecordRun], Collection[int]]
"""Takes over the strays of a run and returns their sequence numbers; normally there are none."""


class Partition(PartitionPermissions):
    """Everything about one partition from its assignment (an epoch) until it is released.

    Owner: poll thread.
    """

    find_strays: FindStrays | None = None
    """Finds copies that belong to another partition, see ``lane_ownership``; None if none can."""
    topic_id: str | None = None
    """The topic's id, which its copies carry; None if the cluster does not report it."""
    kept: PartitionOutcomes | None = None
    """Set when the partition is lost: the finished offsets, in case it returns
    (``kept_outcomes``)."""
    recalled: PartitionOutcomes | None = None
    """The offsets that had finished before it was lost and need not run again. Set only while
    observers are notified of the assignment."""

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
        super().__init__()
        self.name = name
        self.retry_level = retry_level
        self.siblings: list[Partition] = []
        """The other partitions with the same lanes: the source partition and those of its copies.
        """
        self.epoch = epoch
        self.assignment = AssignmentEpoch(epoch, commit.topic_hash, commit.membership)
        self.window = window
        self.ordering = ordering
        self.commit = commit
        self.position = 0
        """The client's position: beyond the last delivered record and any transaction markers."""
        self._refused_from: int | None = None
        """The first offset that was delivered during the revocation."""
        self.log_end: int | None = None
        """One past the log's last offset, if the client has reported it."""
        self.holes = Holes()
        self.bytes = 0
        """Payload of unfinished and buffered records."""
        self._budget = budget
        self.buffer = DeliveryBuffer()
        """What was delivered while the window was full or before it was due."""
        self.slices = 0
        """Slices in progress."""
        self.dispatched_at = float("-inf")
        self.asks_turns = False
        """Rules are asked about each of its records, see ``turn``."""
        self.unreadable: set[int] = set()
        """Offsets of open records whose headers are lost."""
        self._finished_before = FinishedBefore(finished_before)

    @property
    def home(self) -> TopicPartition:
        """The source partition of its records: its lanes belong to that one."""
        return TopicPartition(self.retry_level.source, self.name.partition)

    @property
    def buffered(self) -> int:
        """How many delivered records wait outside the window."""
        return self.buffer.records

    @property
    def idle(self) -> bool:
        """All delivered records are finished."""
        return not (self.window.open or self.buffer)

    @property
    def first_unfinished(self) -> int | None:
        """The offset of the first record without a final outcome; None if there is none."""
        window = self.window
        if window.open:
            first = next(cell for cell in window.cells if cell.open)
            return window.offsets.offset_of(first.first_open_seq())
        return self.buffer.first_offset

    def unseen(self, messages: list[Message]) -> list[Message]:
        """Return the messages not delivered before in this epoch (normally all)."""
        expected = self.next_delivery
        if messages[0].offset() >= expected:
            return messages
        return [m for m in messages if m.offset() >= expected]

    def is_beyond_log(self, messages: list[Message]) -> bool:
        """Return whether records leave a hole and lie beyond the log's end, if that is known."""
        leaves_hole = messages[0].offset() > self.next_delivery
        return leaves_hole and self.log_end is not None and messages[-1].offset() >= self.log_end

    @property
    def next_delivery(self) -> int:
        """The lowest offset that has not been delivered."""
        return self.buffer.next_offset if self.buffer else self.window.offsets.next_offset

    def record_unreadable(self, offsets: Iterable[int], unseen: Sequence[Message]) -> None:
        """Record which of the incoming records have lost their headers."""
        first = _offset(unseen[0])
        self.unreadable.update(each for each in offsets if each >= first)

    def take_in(self, messages: list[Message], size: int, now: float) -> int:
        """Take new records with ``size`` bytes of payload into the window while it has room.

        The rest wait in the buffer. Return how many an earlier assignment had finished.
        """
        if not self.buffer and self.takes_in and self._fitting(messages) == len(messages):
            return self._admit(messages, size, now)
        self.buffer.put(now, messages)
        return self._refill(now)

    def take_in_later(self, messages: list[Message], now: float, wall_ms: float) -> int:
        """Take new copies that wait until they are due; return the same count as ``take_in``."""
        dues = [now + self.retry_level.wait_s(message, wall_ms) for message in messages]
        self.buffer.put_copies(dues, messages)
        return self._refill(now)

    def refuse(self, messages: Sequence[Message]) -> None:
        """Record that it did not take these records although its position is beyond them."""
        first = _offset(messages[0])
        if self._refused_from is None or first < self._refused_from:
            self._refused_from = first

    @property
    def end_of_taken(self) -> int:
        """The client's position, or the first refused record if that is earlier."""
        refused = self._refused_from
        return self.position if refused is None else min(self.position, refused)

    @property
    def has_run_freely(self) -> bool:
        """Something has started, and no suspects are left."""
        return self.has_started and HoldReason.CRASH_SUSPECTS not in self.holds

    @property
    def has_started(self) -> bool:
        """Something has gone to a slot in this assignment."""
        return self.dispatched_at > float("-inf")

    @property
    def is_full(self) -> bool:
        """Nothing more is taken in until a record finishes."""
        no_room = not (self.is_fetched and self.window.room)
        return (
            no_room
            or HoldReason.METADATA_FULL in self.holds
            or self._budget.used >= self._budget.limit
        )

    @property
    def next_due(self) -> float:
        """When the first buffered record is due; infinity if none waits."""
        return self.buffer.next_due

    def slide(self, now: float) -> int:
        """Release the complete cells at the window's start and refill the window.

        Return how many of the records taken in an earlier assignment had finished.
        """
        self.window.slide(now)
        return self._refill(now) if self.buffer else 0

    def _refill(self, now: float) -> int:
        earlier = 0
        while self.buffer and self.takes_in:
            due, first = self.buffer[0]
            room = 0 if due > now else self._fitting(first)
            if not room:
                break
            messages = self.buffer.take(room)
            earlier += self._admit(messages, sum(map(len, messages)), now)
        return earlier

    def _fitting(self, messages: list[Message]) -> int:
        """Return how many of these records, from the first on, fit into the window."""
        room = min(self.window.room, len(messages))
        reach = self.window.reach(_offset(messages[0]))
        if room and _offset(messages[room - 1]) >= reach:
            return bisect_left(messages, reach, hi=room, key=_offset)
        return room

    def _admit(self, messages: list[Message], size: int, now: float) -> int:
        """Take records into the window, which must have room, and let them wait to start."""
        first, last = _offset(messages[0]), _offset(messages[-1])
        if is_contiguous(first, last, len(messages)) and not self._finished_before:
            seq = self.window.append(range(first, after(last)), now)
            self._let_start(RecordRun(messages, range(seq, seq + len(messages)), size))
            return 0
        offsets = [_offset(message) for message in messages]
        position = finished = 0
        for run in runs_of(offsets):
            for piece, was_finished in self._finished_before.pieces(run):
                stop = position + len(piece)
                outcome = Outcome.EARLIER if was_finished else Outcome.OPEN
                seq = self.window.append(piece, now, outcome)
                if not was_finished:
                    part = messages[position:stop]
                    self._let_start(RecordRun.of(part, range(seq, seq + len(part))))
                else:
                    finished += len(piece)
                    self.let_go(sum(map(len, messages[position:stop])))
                    self.unreadable.difference_update(piece if self.unreadable else ())
                    self.commit.changed = True
                position = stop
        if finished:
            # Nothing else may be left to finish and slide the window.
            self.window.slide(now)
        return finished

    def _let_start(self, run: RecordRun) -> None:
        """Queue records to start, except strays."""
        if self.find_strays is None or not (strays := self.find_strays(self, run)):
            self.ordering.add(run)
            return
        for message, seq in zip(run.messages, run.seqs, strict=True):
            if seq not in strays:
                self.ordering.add(RecordRun.of([message], range(seq, seq + 1)))

    def finish(self, seqs: Sequence[int], outcome: Outcome, size: int, now: float) -> None:
        """Give records their final outcome and release their ``size`` bytes."""
        self.window.finish(seqs, outcome, now)
        self.let_go(size)
        self.commit.changed = True

    def finished_ranges(self) -> Iterator[range]:
        """Yield the finished offsets beyond ``window.next_offset``, in order."""
        return self.with_earlier(self.window.finished_ranges())

    def with_earlier(self, finished: Iterable[range]) -> Iterator[range]:
        """Yield the window's finished offsets, then those that are not delivered yet, in order."""
        return self._finished_before.joined_to(finished, self.window.offsets.next_offset)

    def waiting(self, now: float) -> int:
        """Return roughly how many records could run if nothing held the partition back."""
        due = self.buffer.records if self.next_due <= now else 0
        return self.window.open + due

    def hold(self, size: int) -> None:
        """Account for ``size`` bytes that arrived."""
        self.bytes += size
        self._budget.used += size

    def find_origin(self) -> None:
        """If its records are copies, take the topic hash of their source partition."""
        if self.retry_level.is_copy:
            for sibling in self.siblings:
                if not sibling.retry_level.is_copy:
                    topic_hash = sibling.assignment.topic_hash
                    self.assignment = self.assignment._replace(topic_hash=topic_hash)

    def join(self, siblings: Sequence[Partition]) -> None:
        """Link the partitions that share its lanes; each is woken when lanes become free."""
        self.siblings.extend(siblings)
        for sibling in siblings:
            sibling.siblings.append(self)
        for each in (self, *siblings):
            each.find_origin()

    def let_go(self, size: int) -> None:
        """Account for ``size`` bytes that are no longer needed."""
        self.bytes -= size
        self._budget.used -= size

    def give_up(self) -> None:
        """Discard everything that waits; late results will be ignored."""
        self.commit.membership.is_over = True
        is_revoking = self.state is PartitionState.REVOKING
        self._enter(PartitionState.REVOKED if is_revoking else PartitionState.LOST)
        self.let_go(self.bytes)
        self.ordering.leave()
        for sibling in self.siblings:
            sibling.siblings.remove(self)
        self.siblings.clear()
        self.buffer.clear()


def _offset(message: Message) -> int:
    return int(message.offset())
