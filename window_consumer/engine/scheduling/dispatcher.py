"""Dispatch: which records go to the slots next, in slices of which length, and what comes back.

The dispatcher keeps up to two slices a slot in progress, so that a slot finds its next one without
waiting for the poll thread. It takes records back from a slice whose current record is slow.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection, Iterable, Sequence
from itertools import chain

from window_consumer.engine.partition import Partition
from window_consumer.engine.retry.failed_record import FailedRecord
from window_consumer.engine.scheduling.lanes import Lane, LaneHold
from window_consumer.engine.scheduling.ordering import Ordering, Taken
from window_consumer.engine.scheduling.rate_limit import RateLimits
from window_consumer.engine.scheduling.record_queue import Place
from window_consumer.engine.scheduling.retry_share import RetryShare
from window_consumer.engine.scheduling.slices import Slice, SliceLength
from window_consumer.model.record import Message

SLICE_TARGET_S = 0.005
"""The target duration of a slice: long compared with a hand-over (some 20 us), imperceptible to a
person."""

TURN_S = 0.05
"""The target duration of a slice if no other slot could run its records. Between two such slices
the lane idles during the hand-over, some 0.2 to 0.5 ms."""

TURN_RECORDS = 50
"""The most records in such a slice: a call may have seemed quick by chance."""

SMALL_CHANGE_S = 0.0005
"""Work shorter than this is not worth a slot of its own: it waits for more records."""

COMPANY_S = 0.005
"""How long such work waits at most, and only while another slice of its partition is in progress.
"""

STUCK_S = 0.015
"""A slice whose current record has made no progress for this long, and for twice the usual call,
gives its unstarted records back."""

MAX_SLICES_PER_S = 5000
"""Above this rate, a slice holds several records if enough wait. With many slots and slow handlers,
hand-overs and thread switches would otherwise be most of the work."""

MAX_SHARED = 16
"""The most records such a slice holds."""

AHEAD_S = 0.01
"""How much work may wait for the slots. More would wait here longer than it takes to run: with
6,000 records of 10 ms and 16 slots, the last record waited 4 s, and a stop left the rest to be
fetched again."""

LEFT_S = 0.006
"""How much of AHEAD_S is left when more is fetched: a request for each record costs more than the
record."""

QUICK_S = 0.0001
"""If a call is quicker than this, waiting work is measured in slices: a batch takes no time."""

LONG_CALL_S = 0.1
"""If a call takes longer than this, no record has to wait behind it: fetching the next one takes
negligible time in comparison."""

REST_S = 0.001
"""How long results may wait while the slots have enough queued. Reading twenty at once takes the
interpreter's lock once, not twenty times."""

REST_QUEUED = 0.5
"""How many queued slices a slot are enough for a rest, if each takes four times REST_S."""

SHARED_QUEUED = 0.25
"""How many queued slices a slot are enough if slow records share slices, as each holds many calls.
New slices are then as long as possible, because the poll thread's work is per slice."""

LONGEST_REST_S = 0.005
"""If a slice takes longer still, results wait an eighth of its duration, at most this long. With a
thousand concurrent calls, reading results a thousand times a second costs more than all other
work."""

LOOK_EVERY_S = 10e-6
"""How much time passes until the next inspection, for each inspected slice. One inspection takes
some 1 us, so thousands of slices would otherwise take all the time."""

SLICES_PER_SLOT = 2


class Dispatcher:
    """Turns waiting records into slices. Owner: poll thread."""

    def __init__(
        self,
        slots: int,
        max_batch_records: int,
        slices_per_slot: int = SLICES_PER_SLOT,
        max_slice_records: int | None = None,
    ):
        """``max_slice_records`` is ``max_batch_records`` if it is None."""
        self.slots = slots
        """How many may be busy; a limiter changes it. Lowering it takes nothing back."""
        self.present_slots = slots
        """How many the pool has now, busy or free."""
        self.slices_per_slot = slices_per_slot
        """One under a limiter: a queued slice would run in a slot that should stay idle."""
        self._max_batch_records = max_batch_records
        self._max_slice_records = max_slice_records or max_batch_records
        self._length = SliceLength(SLICE_TARGET_S, self._max_slice_records)
        self._out: dict[Slice, None] = {}
        self.abandoned: dict[Slice, None] = {}
        """Slices whose call was abandoned and has not returned; they no longer have a slot."""
        self._long: dict[Slice, None] = {}
        """Slices in progress with several records: only these have something to take back."""
        self._records_out = 0
        self._partitions: deque[Partition] = deque()
        """Partitions that may have new records to start; the next one is first."""
        self._copies: deque[Partition] = deque()
        """The same for retry levels, whose records failed before."""
        self.turns = RetryShare(slots)
        """Decides when retries run although new records wait."""
        self._queued: set[Partition] = set()
        self._looked_at = 0.0
        self._shared = 1
        """How many slow records currently share a slice."""
        self.held_back = 0
        """Records that wait for others to join them; check again within COMPANY_S."""
        self.rates: RateLimits | None = None
        """Set if a rate limits calls."""
        self.longest: int | None = None
        """The most records a slice may hold, so that there is room for what its calls return."""
        self.searches = False
        """Windows are filled whatever waits in them: healthy records may be behind bad ones."""
        self.kept_free: int | None = None
        """So many slots are kept for samples, and no slice queues in front of the others."""
        self.in_turn = False
        """Each partition is a lane: no other slot could run a slice's unstarted records."""
        self._turn = 0
        """Records in a slice while each partition with records finds a slot of its own."""

    @property
    def out(self) -> Collection[Slice]:
        """The slices that are queued or running."""
        return self._out.keys()

    def running_since(self, first: float, last: float) -> int:
        """Return how many slices of new records run that began between two times, in O(slots)."""
        return sum(each.is_new and first <= each.started <= last for each in self._out)

    @property
    def full(self) -> bool:
        """No further slice is wanted now."""
        slots = min(self.slots, self.present_slots)
        if self.kept_free is not None:
            return len(self._out) >= slots - self.kept_free
        slices = slots * self.slices_per_slot
        return len(self._out) >= slices or self._records_out >= max(
            2 * self._max_slice_records, slices * self._shared
        )

    @property
    def hungry(self) -> bool:
        """Further records could be used now: fewer wait than the slots take next."""
        if self.searches:
            return True
        if self.full or (self.rates is not None and self.rates.is_dry):
            return False
        if self.is_quick:
            enough = self.slots * SLICES_PER_SLOT * self._length.records
            return self._waiting() < min(enough, self._max_batch_records)
        return self._supply() < self._ahead(LEFT_S)

    @property
    def appetite(self) -> int:
        """How many records to request at once: until ``AHEAD_S`` of work waits."""
        if self.searches:
            return self._max_batch_records
        if self.is_quick:
            # More is on its way and queued, a slice each: request twice as much at once.
            ahead = int(self.slots * 2 * AHEAD_S / self._length.cost_s)
            return min(ahead, self._max_batch_records)
        return max(1, min(self._ahead(AHEAD_S) - self._supply(), self._max_batch_records))

    @property
    def is_quick(self) -> bool:
        """A hand-over costs more than waiting, so records go in long slices and full batches."""
        return self._length.cost_s < QUICK_S

    def _ahead(self, seconds: float) -> int:
        """Return how many records the slots begin in ``seconds``, beyond one for each slot.

        The other records of running slices are added. If a call takes long, but not very long, at
        least one record is ready.
        """
        cost_s = self._length.cost_s
        most = self._most_shared()
        in_slices = self.slots * (max(self._length.records, most) - 1)
        if most > 1:
            # Without a stock of long slices, short ones would replace those that return.
            in_slices += int(self.slots * most * 2 * SHARED_QUEUED)
        return in_slices + max(cost_s < LONG_CALL_S, int(self.slots * seconds / cost_s))

    def _supply(self) -> int:
        """Return how many records there are beyond one for each slot; may be negative."""
        return self._records_out + self._waiting() - self.slots

    @property
    def rest_s(self) -> float:
        """For how long reading results would achieve nothing; 0 if it may help now."""
        queued = len(self._out) - self.slots
        slice_s = self._length.cost_s * max(self._length.records, self._shared)
        enough = REST_QUEUED if self._shared <= 1 else SHARED_QUEUED
        if queued < self.slots * enough or slice_s < 4 * REST_S:
            return 0.0
        return min(LONGEST_REST_S, max(REST_S, slice_s / 8))

    @property
    def idle_slots(self) -> int:
        """How many slots have nothing to do and nothing queued."""
        return max(0, self.slots - len(self._out))

    @property
    def cost_s(self) -> float:
        """The estimated seconds that a handler call takes."""
        return self._length.cost_s

    @property
    def knows_cost(self) -> bool:
        """Some call has returned, so the cost is no longer a guess."""
        return self._length.has_learnt

    @property
    def turn_records(self) -> int:
        """How many records go at once if no other slot could take them; 0 if others could."""
        cost_s = self._length.cost_s
        if not self.in_turn or not self.knows_cost or self.is_quick:
            return 0
        return max(1, min(int(TURN_S / cost_s), TURN_RECORDS))

    @property
    def _has_slots_for_all(self) -> bool:
        return len(self._out) + len(self._partitions) <= self.slots

    @property
    def slice_records(self) -> int:
        """How many records a slice should hold now."""
        records = self._length.records
        return records if self.longest is None else min(records, self.longest)

    def slices_of(self, partition: Partition) -> list[Slice]:
        """Return the slices of one partition, abandoned ones included."""
        known = chain(self._out, self.abandoned)
        return [slice_ for slice_ in known if slice_.partition is partition]

    def wake(self, partition: Partition) -> None:
        """Queue a partition that may have records to start, unless it is held back."""
        if partition not in self._queued and partition.starts_calls:
            self._queued.add(partition)
            self._line_of(partition).append(partition)

    def remove(self, partition: Partition) -> None:
        """Stop scheduling a partition; its slices in progress stay known until they return."""
        if self.rates is not None:
            self.rates.remove(partition)
        if partition in self._queued:
            self._queued.remove(partition)
            self._line_of(partition).remove(partition)

    def _line_of(self, partition: Partition) -> deque[Partition]:
        return self._partitions if partition.retry_level.level is None else self._copies

    @property
    def has_new(self) -> bool:
        """New records may wait for a slot."""
        return bool(self._partitions)

    @property
    def has_copies(self) -> bool:
        """Copies in retry levels may wait for a slot."""
        return bool(self._copies)

    def break_up(self, partition: Partition) -> None:
        """Release records that were chosen but not sent; only batches have these."""

    def part(self, slice_: Slice) -> None:
        """Send the halves of a batch on which its process died."""
        raise NotImplementedError  # other slices are completed record by record

    def half(self, now: float) -> Slice | None:  # noqa: ARG002 - batches have such
        """Make a batch of the next half that may go out; None if none may."""
        return None

    def join_up(self, partition: Partition) -> None:
        """Release pending halves: records that are put back go before them."""

    def break_all_up(self) -> None:
        """Release all records that were chosen but not sent: nothing may go out for a while."""

    def next_due(self) -> float:
        """Return when something goes out by time alone; infinity if nothing waits for a time."""
        return float("inf")

    def slices(self, now: float) -> Iterable[Slice]:
        """Yield the slices of new records that should go out now, from the partitions in turn."""
        self._length.learn()
        self.held_back = 0
        return self._slices(self._partitions, now)

    def copies(self, now: float) -> Iterable[Slice]:
        """Yield slices of copies in retry levels that may go out now, as ``slices`` does."""
        return self._slices(self._copies, now)

    def _slices(self, partitions: deque[Partition], now: float) -> Iterable[Slice]:
        self._shared = self._share()
        small = max(1, int(SMALL_CHANGE_S / self._length.cost_s))
        self._turn = self.turn_records if self._has_slots_for_all else 0
        passed_over = 0
        while partitions and not self.full:
            partition = partitions.popleft()
            waiting = partition.ordering.startable if partition.is_assigned else 0
            if not waiting:
                self._queued.remove(partition)
                continue
            if waiting < small and partition.slices and now - partition.dispatched_at < COMPANY_S:
                self.held_back += waiting
                partitions.append(partition)
                passed_over += 1
                if passed_over >= len(partitions):
                    break
                continue
            slice_ = self._cut(partition, waiting, small)
            if slice_ is None:
                self._queued.remove(partition)
                continue
            passed_over = 0
            partitions.append(partition)
            self._send(slice_, now)
            yield slice_

    def _cut(self, partition: Partition, waiting: int, small: int) -> Slice | None:
        """Make a slice; if slots are idle, divide the waiting records among them."""
        count = min(max(self.slice_records, self._shared, self._turn), self._max_slice_records)
        if self.longest is not None:
            count = min(count, self.longest)
        idle = self.slots - len(self._out)
        if idle > 1 and count > 1 and not self._turn:
            count = min(count, max(small, -(-waiting // idle)))
        taken = partition.ordering.take(count)
        if taken is None:
            return None
        run, hold = taken
        return Slice(partition, run.messages, run.seqs, run.bytes, hold)

    def sample(self, now: float, place: Place, but: Callable[[Lane], bool]) -> Slice | None:
        """Make a slice of one new record from a place of a window; None if none may start.

        Lanes for which ``but`` returns true are left out. The next call uses another partition.
        """
        return self._single(self._partitions, now, lambda each: each.take_at(place, but))

    def single_copy(self, now: float) -> Slice | None:
        """Make a slice of the first copy that may start; None if none can."""
        return self._single(self._copies, now, lambda each: each.take(1))

    def _single(
        self, partitions: deque[Partition], now: float, take: Callable[[Ordering], Taken | None]
    ) -> Slice | None:
        for partition in partitions:
            taken = take(partition.ordering) if partition.is_assigned else None
            if taken is not None:
                run, hold = taken
                slice_ = Slice(partition, run.messages, run.seqs, run.bytes, hold)
                self._send(slice_, now)
                partitions.remove(partition)
                partitions.append(partition)
                return slice_
        return None

    def again(self, records: Sequence[FailedRecord], now: float) -> Slice:
        """Make a slice of records that failed before, all with the same number of attempts."""
        partition = records[0].partition
        messages = [failed.message for failed in records]
        slice_ = Slice(
            partition,
            messages,
            [failed.seq for failed in records],
            sum(map(len, messages)),
            # Their own holds end when they leave, perhaps before their calls end.
            partition.ordering.acquire(failed.lane for failed in records),
            records[0].attempts + 1,
        )
        slice_.again = {failed.seq: failed for failed in records}
        slice_.call.uncalled = records[0].uncalled
        self._charge(slice_)
        self._send(slice_, now)
        return slice_

    def alone(
        self, partition: Partition, message: Message, seq: int, hold: LaneHold, now: float
    ) -> Slice:
        """Make a slice of one record that starts for the first time."""
        slice_ = Slice(partition, [message], (seq,), len(message), hold)
        self._charge(slice_)
        self._send(slice_, now)
        return slice_

    def _charge(self, slice_: Slice) -> None:
        """Charge the rates for records that no ordering has charged."""
        if self.rates is not None:
            self.rates.charge(slice_.partition, slice_.messages)

    def _send(self, slice_: Slice, now: float) -> None:
        slice_.partition.slices += 1
        slice_.partition.dispatched_at = slice_.sent = now
        self._out[slice_] = None
        self.turns.sent(slice_, now)
        records = len(slice_.messages)
        if self.rates is not None:
            self.rates.sent(slice_)
        self._records_out += records
        if records > 1:
            self._long[slice_] = None

    def back(self, slice_: Slice) -> None:
        """Record that a slot has completed a slice."""
        if slice_ in self.abandoned:
            del self.abandoned[slice_]
            return
        del self._out[slice_]
        self.turns.over(slice_)
        self._long.pop(slice_, None)
        if self.rates is not None:
            self.rates.over(slice_)
        slice_.partition.slices -= 1
        self._records_out -= len(slice_.messages)
        records = slice_.settled + len(slice_.messages)
        if records and slice_.elapsed:
            self._length.record(records, slice_.elapsed)

    def abandon(self, slice_: Slice) -> None:
        """Record that a slice's slot was replaced: its call may return at any time, or never."""
        del self._out[slice_]
        self.turns.over(slice_)
        self._long.pop(slice_, None)
        slice_.partition.slices -= 1
        self._records_out -= len(slice_.messages)
        if self.rates is not None:
            self.rates.over(slice_)
        self.abandoned[slice_] = None

    def split(self, slice_: Slice) -> tuple[Slice, list[Message], Sequence[int]]:
        """Take back a slice's unstarted records, see ``Slice.split``."""
        messages = slice_.messages
        parts = slice_.split()
        if self.rates is not None:
            self.rates.split(slice_, messages, parts[1])
        if slice_ in self._out:
            self._records_out -= len(messages) - len(slice_.messages)
        self._long.pop(slice_, None)
        return parts

    def slow(self, now: float) -> list[Slice]:
        """Return the slices whose unstarted records should be taken back.

        Inspects slices at most every 5 ms, less often if there are thousands. A slice is slow if
        its record has made no progress for STUCK_S, or if it exceeds the target duration while
        slots are idle.
        """
        if now - self._looked_at < max(SLICE_TARGET_S, len(self._long) * LOOK_EVERY_S):
            return []
        self._looked_at = now
        idle = self.idle_slots > 0 and not self._partitions and not self.in_turn
        stuck_s = max(STUCK_S, 2 * self._length.cost_s)
        return [
            slice_
            for slice_ in self._long
            if slice_.started and self._is_slow(slice_, now, stuck_s, idle=idle)
        ]

    def _waiting(self) -> int:
        return sum(partition.ordering.startable for partition in self._partitions)

    def _share(self) -> int:
        """Return how many slow records the next slices hold: waiting records divided by slots."""
        most = self._most_shared()
        if most <= 1 or len(self._out) - self.slots >= self.slots * SHARED_QUEUED:
            return max(1, most)
        return min(most, self._waiting() // self.slots)

    def _most_shared(self) -> int:
        return min(MAX_SHARED, int(self.slots / (self._length.cost_s * MAX_SLICES_PER_S)))

    @staticmethod
    def _is_slow(slice_: Slice, now: float, stuck_s: float, *, idle: bool) -> bool:
        records = len(slice_.messages)
        if records == 1:
            return False
        claimed = slice_.claimed()
        if claimed == records:
            return False
        if claimed != slice_.progress:
            slice_.progress = claimed
            slice_.progress_at = now
            return idle and now - slice_.started > SLICE_TARGET_S
        return now - slice_.progress_at > stuck_s or (
            idle and now - slice_.started > SLICE_TARGET_S
        )
