"""Dispatch: which records go to the slots next, in slices of which length, and what is taken back.

The dispatcher keeps up to two slices per slot in progress, so that a slot finds its next one
without waiting for the poll thread. It takes records back from a slice whose current record is
slow.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from itertools import chain

from window_consumer.engine.guards.stuck_slices import StuckSlices
from window_consumer.engine.partition import Partition
from window_consumer.engine.retry.failed_record import FailedRecord
from window_consumer.engine.scheduling.lanes import Lane, LaneHold
from window_consumer.engine.scheduling.ordering import Taken
from window_consumer.engine.scheduling.rate_limit import RateLimits
from window_consumer.engine.scheduling.record_queue import Place
from window_consumer.engine.scheduling.retry_share import RetryShare
from window_consumer.engine.scheduling.slice_length import (
    SHARED_QUEUED,
    SLICE_TARGET_S,
    SliceLength,
)
from window_consumer.engine.scheduling.slices import Slice
from window_consumer.engine.scheduling.start_queue import (
    SlotTimeLedger,
    StartableRecords,
    StartQueue,
)
from window_consumer.model.record import Message

COMPANY_S = 0.005
"""The longest time that work too short for a separate slot waits while its partition has another
slice."""

SLICES_PER_SLOT = 2


class Dispatcher:
    """Turns waiting records into slices. Owner: poll thread."""

    def __init__(
        self,
        slots: int,
        max_slice_records: int,
        slices_per_slot: int,
        new: StartQueue,
        copies: StartQueue,
    ):
        self.slots = slots
        """How many may be busy; a limiter changes it. Lowering it takes nothing back."""
        self.present_slots = slots
        """How many the pool has now, busy or free."""
        self.slices_per_slot = slices_per_slot
        """One under a limiter: a queued slice would run in a slot that should stay idle."""
        self._max_slice_records = max_slice_records
        self.length = SliceLength(SLICE_TARGET_S, max_slice_records)
        self._out: dict[Slice, None] = {}
        self.abandoned: dict[Slice, None] = {}
        """Slices whose call was abandoned and has not returned; they no longer have a slot."""
        self._stuck = StuckSlices()
        self.records_out = 0
        """The records of the slices in progress."""
        self.new = new
        """New records that may start."""
        self.copies = copies
        """Copies in retry levels that may start; their records failed before."""
        self.woken: set[Partition] = set()
        """Resting partitions that may have records to start."""
        self.ledger: SlotTimeLedger | None = None
        """Set if the queues go by the slot time that records have used."""
        self.turns = RetryShare(slots)
        """Decides when retries run although new records wait."""
        self.shared = 1
        """How many slow records currently share a slice."""
        self.held_back = 0
        """Records that wait for others to join them; they are checked again within COMPANY_S."""
        self.rates: RateLimits | None = None
        """Set if a rate limits calls."""
        self.longest: int | None = None
        """The most records a slice may hold, so that its calls' results have room."""
        self.kept_free: int | None = None
        """This many slots are kept for samples, and no slice queues in front of the others."""
        self.one_by_one = False
        """Each partition is a lane: no other slot could run a slice's unstarted records."""

    @property
    def out(self) -> Collection[Slice]:
        """The slices that are queued or running."""
        return self._out.keys()

    def running_since(self, first: float, last: float) -> int:
        """Return how many running slices of new records began between two times, in O(slots)."""
        return sum(each.is_new and first <= each.started <= last for each in self._out)

    @property
    def full(self) -> bool:
        """No further slice is wanted now."""
        slots = min(self.slots, self.present_slots)
        if self.kept_free is not None:
            return len(self._out) >= slots - self.kept_free
        slices = slots * self.slices_per_slot
        return len(self._out) >= slices or self.records_out >= max(
            2 * self._max_slice_records, slices * self.shared
        )

    @property
    def is_dry(self) -> bool:
        """No rate lets anything start now."""
        return self.rates is not None and self.rates.is_dry

    @property
    def idle_slots(self) -> int:
        """How many slots have nothing to do and nothing queued."""
        return max(0, self.slots - len(self._out))

    @property
    def slice_records(self) -> int:
        """How many records a slice should hold now."""
        return min(self.length.records, self.longest or self.length.records)

    def slices_of(self, partition: Partition) -> list[Slice]:
        """Return the slices of one partition, abandoned ones included."""
        return [each for each in chain(self._out, self.abandoned) if each.partition is partition]

    def wake(self, partition: Partition) -> None:
        """Queue a partition that may have records to start, unless it is held back."""
        if partition.starts_calls:
            (self.new if partition.retry_level.level is None else self.copies).wake(partition)
        elif partition.rests:
            self.woken.add(partition)

    def remove(self, partition: Partition) -> None:
        """Stop scheduling a partition; its slices in progress stay known until they return."""
        if self.rates is not None:
            self.rates.remove(partition)
        (self.new if partition.retry_level.level is None else self.copies).remove(partition)

    def has_chosen(self, partition: Partition) -> bool:  # noqa: ARG002 - batches do
        """Return whether records of a partition were chosen but not sent."""
        return False

    def release_gathered(self, partition: Partition) -> None:
        """Release records that were chosen but not sent; only batches have these."""

    def bisect(self, slice_: Slice) -> None:
        """Send the halves of a batch on which its process died."""
        raise NotImplementedError  # other slices are completed record by record

    def next_half(self, now: float) -> Slice | None:  # noqa: ARG002 - batches have such
        """Make a batch of the next half that may go out; None if none may."""
        return None

    def release_halves(self, partition: Partition) -> None:
        """Release pending halves: records that are put back go before them."""

    def release_all_gathered(self) -> None:
        """Release all records that were chosen but not sent: for a while nothing may go out."""

    def next_due(self, now: float) -> float:  # noqa: ARG002 - batches do
        """Return when something goes out merely because time passes; infinity if nothing does."""
        return float("inf")

    def new_slices(self, now: float) -> Iterable[Slice]:
        """Yield the slices of new records that should go out now."""
        self.length.learn()
        self.held_back = 0
        return self._slices(self.new, now)

    def copy_slices(self, now: float) -> Iterable[Slice]:
        """Yield the slices of copies in retry levels that may go out now."""
        return self._slices(self.copies, now)

    def _slices(self, queue: StartQueue, now: float) -> Iterable[Slice]:
        self.shared = self._share()
        small = self.length.worth_a_slot
        has_slots_for_all = len(self._out) + len(self.new) <= self.slots
        turn = self.length.turn_records if self.one_by_one and has_slots_for_all else 0
        queue.begin()
        while not self.full and (backlog := queue.next()) is not None:
            partition, records = backlog
            waiting = records.startable if partition.gives_out else 0
            if not waiting:
                queue.leave(backlog)
            elif waiting < small and self._awaits_company(partition, small, now):
                self.held_back += waiting
                queue.pass_over(backlog)
            elif taken := records.take(self._cut(waiting, small, turn)):
                slice_ = Slice.taken(partition, *taken)
                queue.served(backlog)
                self._send(slice_, now)
                yield slice_
            else:
                queue.leave(backlog)

    def _awaits_company(self, partition: Partition, small: int, now: float) -> bool:
        """Return whether others may join its records; records of another class never do."""
        is_recent = partition.slices and now - partition.dispatched_at < COMPANY_S
        return bool(is_recent) and partition.ordering.startable < small

    def _cut(self, waiting: int, small: int, turn: int) -> int:
        """Return how many records a slice gets; idle slots divide the waiting records.

        ``turn`` is how many records go at once while each partition finds its own slot; else 0.
        """
        count = min(max(self.slice_records, self.shared, turn), self._max_slice_records)
        if self.longest is not None:
            count = min(count, self.longest)
        idle = self.slots - len(self._out)
        if idle > 1 and count > 1 and not turn:
            count = min(count, max(small, -(-waiting // idle)))
        return count

    def sample(self, now: float, place: Place, but: Callable[[Lane], bool]) -> Slice | None:
        """Make a slice of one new record from a place in a window; None if none may start.

        Lanes for which ``but`` returns true are left out. The next call uses another partition.
        """
        return self._single(self.new, now, lambda each: each.take_at(place, but))

    def single_copy(self, now: float) -> Slice | None:
        """Make a slice of the first copy that may start; None if none can."""
        return self._single(self.copies, now, lambda each: each.take(1))

    def _single(
        self, queue: StartQueue, now: float, take: Callable[[StartableRecords], Taken | None]
    ) -> Slice | None:
        for backlog in queue:
            partition, records = backlog
            if partition.gives_out and (taken := take(records)):
                slice_ = Slice.taken(partition, *taken)
                self._send(slice_, now)
                queue.served(backlog)
                return slice_
        return None

    def again(self, records: Sequence[FailedRecord], now: float) -> Slice:
        """Make a slice of records that failed before, all with the same number of attempts."""
        return self._send_uncharged(Slice.called_again(records), now)

    def alone(
        self, partition: Partition, message: Message, seq: int, hold: LaneHold, now: float
    ) -> Slice:
        """Make a slice of one record that starts for the first time."""
        return self._send_uncharged(Slice(partition, [message], (seq,), len(message), hold), now)

    def _send_uncharged(self, slice_: Slice, now: float) -> Slice:
        """Send records that no ordering has charged to their rates yet."""
        if self.rates is not None:
            self.rates.charge(slice_.partition, slice_.messages)
        self._send(slice_, now)
        return slice_

    def _send(self, slice_: Slice, now: float) -> None:
        slice_.partition.slices += 1
        slice_.partition.dispatched_at = slice_.sent = now
        self._out[slice_] = None
        self.records_out += len(slice_.messages)
        self.turns.sent(slice_, now)
        if self.ledger is not None:
            self.ledger.sent(slice_)
        if self.rates is not None:
            self.rates.sent(slice_)
        self._stuck.add(slice_)

    def back(self, slice_: Slice) -> None:
        """Record that a slot has completed a slice."""
        if slice_ in self.abandoned:
            del self.abandoned[slice_]
            return
        self._free_slot(slice_)
        records = slice_.settled + len(slice_.messages)
        if records and slice_.elapsed:
            self.length.record(records, slice_.elapsed)

    def abandon(self, slice_: Slice) -> None:
        """Record that a slice's slot was replaced: its call may return at any time, or never."""
        self._free_slot(slice_)
        self.abandoned[slice_] = None

    def _free_slot(self, slice_: Slice) -> None:
        del self._out[slice_]
        slice_.partition.slices -= 1
        self.records_out -= len(slice_.messages)
        self.turns.over(slice_)
        if self.ledger is not None:
            self.ledger.over(slice_)
        if self.rates is not None:
            self.rates.over(slice_)
        self._stuck.remove(slice_)

    def split(self, slice_: Slice) -> tuple[Slice, list[Message], Sequence[int]]:
        """Take back a slice's unstarted records, see ``Slice.split``."""
        messages = slice_.messages
        parts = slice_.split()
        if self.rates is not None:
            self.rates.split(slice_, messages, parts[1])
        if slice_ in self._out:
            self.records_out -= len(messages) - len(slice_.messages)
        self._stuck.remove(slice_)
        return parts

    def stuck(self, now: float) -> list[Slice]:
        """Return the slices whose unstarted records should go to other slots."""
        idle = self.idle_slots > 0 and not self.new and not self.one_by_one
        return self._stuck.find(now, self.length.cost_s, idle=idle)

    def _share(self) -> int:
        """Return how many slow records go into a slice: waiting records divided by slots."""
        most = self.length.most_shared(self.slots)
        if most <= 1 or len(self._out) - self.slots >= self.slots * SHARED_QUEUED:
            return max(1, most)
        return max(1, min(most, self.new.startable // self.slots))
