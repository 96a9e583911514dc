"""Slices: the records that one slot gets at once; ``slice_length`` decides how many.

A slice is the only object that two threads touch. These rules make it safe without a lock:

* ``unclaimed`` is a list iterator. The slot claims its next record by advancing it; the poll thread
  takes back all unclaimed records by exhausting it (``list(unclaimed)``). Under the GIL both are
  single C calls, so each record is claimed exactly once, and the claimed records are a prefix of
  the slice.
* A slot in another process cannot share an iterator; ``claims`` replaces it there, with the same
  promises.
* The slot's progress follows from what is left in the iterator (``length_hint``): the hot loop
  publishes nothing.
* The slot fills ``deviations`` before it claims its next record. After taking the rest back, the
  poll thread therefore sees the result of every claimed record but the last.
* A batch is claimed as a whole, by exhausting ``unclaimed``: all of its records run, or none.
* Everything else is written by the slot before the slice enters the completions queue and read by
  the poll thread afterwards, or in the other direction through the work queue.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from operator import length_hint
from types import MappingProxyType
from typing import TYPE_CHECKING, Protocol

from window_consumer.engine.scheduling.lanes import NO_HOLD, Lane, LaneHold, LaneOf
from window_consumer.engine.scheduling.slice_results import Deviations, SliceResults
from window_consumer.model.record import Call, Message

if TYPE_CHECKING:
    from window_consumer.engine.partition import Partition
    from window_consumer.engine.retry.failed_record import FailedRecord
    from window_consumer.engine.scheduling.record_queue import RecordRun

NONE_FAILED: Mapping[int, FailedRecord] = MappingProxyType({})
"""For slices of records that are called for the first time."""


class Claims(Protocol):
    """The claims on a slice's records if its slot is in another process. Owner: any thread."""

    def left(self) -> int:
        """Return how many records are unclaimed."""

    def take_back(self) -> list[Message]:
        """Take all unclaimed records; results of all claimed ones but the last are recorded."""


class Work(Protocol):
    """The part of a slice that a slot needs: the slice itself, or its copy in another process."""

    call: Call
    lane_of: LaneOf | None
    unclaimed: Iterator[Message]

    def deviate(self) -> Deviations:
        """Return where the slot records deviations from a plain return."""


class Slice:
    """Records of one partition for one slot. Owners: see the module's docstring."""

    __slots__ = (
        "again",
        "bytes",
        "call",
        "claims",
        "computed",
        "deviations",
        "elapsed",
        "hold",
        "is_batch",
        "lane_of",
        "lease_until",
        "messages",
        "partition",
        "progress",
        "progress_at",
        "sent",
        "seqs",
        "settled",
        "started",
        "thread",
        "unclaimed",
    )

    def __init__(
        self,
        partition: Partition,
        messages: list[Message],
        seqs: Sequence[int],
        size: int,
        hold: LaneHold = NO_HOLD,
        attempt: int = 1,
    ):
        self.partition = partition
        self.messages = messages
        self.seqs = seqs
        self.bytes = size
        self.hold = hold
        """The lanes that its records keep busy."""
        self.again = NONE_FAILED
        """Its records by sequence number, if they failed before."""
        self.lane_of: LaneOf | None = partition.ordering.lane_of if attempt == 1 else None
        """None if its records are unordered: the slot may ignore earlier failures."""
        self.call = Call(attempt, before=partition.retry_level.attempts_before)
        """What its records tell their handler about this call."""
        self.call.assignment = partition.assignment
        self.is_batch = False
        """One call gets all of its records as a list, see ``batching``."""
        self.unclaimed: Iterator[Message] = iter(messages)
        self.claims: Claims | None = None
        """Set by pools whose slots are processes, which then leave ``unclaimed`` alone."""
        self.deviations: Deviations | None = None
        self.settled = 0
        """Claimed records whose outcome was processed before the slice came back."""
        self.sent = 0.0
        """When it was dispatched."""
        self.thread = 0
        self.started = 0.0
        """When a slot took it; 0 while it is queued."""
        self.lease_until = 0.0
        """For slots that are leases: when its call ends unless the slot, on any thread, renews it.
        """
        self.elapsed = 0.0
        """Seconds that the slot spent on it."""
        self.computed = 0.0
        """Seconds of processor time of its thread in that time; 0 if the pool does not measure
        it."""
        self.progress = -1
        self.progress_at = 0.0

    @classmethod
    def taken(cls, partition: Partition, run: RecordRun, hold: LaneHold) -> Slice:
        """Make a slice of records that start for the first time."""
        return cls(partition, run.messages, run.seqs, run.bytes, hold)

    @classmethod
    def called_again(cls, records: Sequence[FailedRecord]) -> Slice:
        """Make a slice of records that failed before, all with the same number of attempts."""
        partition = records[0].partition
        messages = [failed.message for failed in records]
        seqs = [failed.seq for failed in records]
        # Their own holds end when they leave, perhaps before their calls end.
        hold = partition.ordering.acquire(failed.lane for failed in records)
        size = sum(map(len, messages))
        slice_ = cls(partition, messages, seqs, size, hold, records[0].attempts + 1)
        slice_.again = dict(zip(seqs, records, strict=True))
        slice_.call.uncalled = records[0].uncalled
        return slice_

    def claimed(self) -> int:
        """Return how many records the slot has claimed; the last of them may be running."""
        left = length_hint(self.unclaimed) if self.claims is None else self.claims.left()
        return len(self.messages) - left

    @property
    def is_empty(self) -> bool:
        """It was taken back whole before any of its records was claimed."""
        return not (self.messages or self.settled)

    def running(self) -> Message | None:
        """Return the record that the slot claimed last; None if it has not begun.

        For a batch, return its first record. Valid only until the slice is completed. Owner: any
        thread.
        """
        claimed = self.claimed()
        if not self.started or not claimed:
            return None
        return self.messages[0 if self.is_batch else claimed - 1]

    def running_seq(self) -> int | None:
        """Return the sequence number of ``running``."""
        claimed = self.claimed()
        if not self.started or not claimed:
            return None
        return self.seqs[0 if self.is_batch else claimed - 1]

    def lane_at(self, index: int) -> Lane | None:
        """Return the lane of the record at ``index``; None if it is unordered."""
        if self.lane_of is not None:
            return self.lane_of(self.messages[index])
        failed = self.again.get(self.seqs[index])
        return None if failed is None else failed.lane

    def begun(self) -> list[Message]:
        """Return the records that the slot has claimed; all records of a batch run."""
        return self.messages[: self.claimed()] if self.started else []

    def all_running(self) -> list[Message]:
        """Return the records whose call is running: one, or all of a batch."""
        return self.begun() if self.is_batch else self.begun()[-1:]

    def deviate(self) -> Deviations:
        """Return where the slot records deviations from a plain return."""
        if self.deviations is None:
            self.deviations = Deviations()
        return self.deviations

    @property
    def is_new(self) -> bool:
        """Its records are called for the first time since they were read from a source or put back.

        Retries and copies in a retry level are not new.
        """
        return self.call.attempt == 1 and self.partition.retry_level.level is None

    @property
    def plain(self) -> bool:
        """Every record was called for the first time and returned, and nothing is produced."""
        return self.deviations is None and self.call.attempt == 1

    def results(self, but: Collection[int] = ()) -> SliceResults:
        """Sort the records by result; the calls of all of them have ended.

        Records at the indices ``but`` are left out.
        """
        return SliceResults.of(self.messages, self.seqs, self.deviations or Deviations(), but)

    def split(self) -> tuple[Slice, list[Message], Sequence[int]]:
        """Keep only the record that may be running, and those held back before it.

        The held ones stay because the running one may soon be held too: they return to their lane
        together, in order. A claimed batch is kept whole. Return a slice of the other finished
        records, the unclaimed records, which the slot will no longer see, and their sequence
        numbers.
        """
        unclaimed = list(self.unclaimed) if self.claims is None else self.claims.take_back()
        claimed = len(self.messages) - len(unclaimed)
        over = 0 if self.is_batch else max(0, claimed - 1)
        messages, seqs = self.messages, self.seqs
        past_messages, past_seqs = messages[:over], seqs[:over]
        self.messages, self.seqs = messages[over:claimed], seqs[over:claimed]
        if self.deviations is not None and self.deviations.held:
            held = set(map(id, self.deviations.held))
            kept = [index for index in range(over) if id(messages[index]) in held]
            past = [index for index in range(over) if id(messages[index]) not in held]
            past_messages, past_seqs = [messages[i] for i in past], [seqs[i] for i in past]
            self.messages = [messages[i] for i in kept] + self.messages
            self.seqs = [*(seqs[i] for i in kept), *self.seqs]
        over_slice = Slice(self.partition, past_messages, past_seqs, 0, NO_HOLD, self.call.attempt)
        over_slice.again = self.again
        over_slice.lane_of = self.lane_of
        over_slice.deviations = self.deviations
        over_slice.started = self.started
        self.bytes = sum(map(len, self.messages))
        self.settled += len(past_messages)
        return over_slice, unclaimed, seqs[claimed:]
