"""Batches: slices that one call receives as a list, and when they go out.

Records that may start are *gathered*, one batch per partition at a time: they have left their
ordering and keep their lanes busy, and later records of those lanes join them. A batch goes out

* when it is full;
* when a slot is free, it holds ``min_records``, and no further records are there;
* when a slot is free, and ``max_wait_s`` has passed since its first record could start;
* when a slot is free, and nothing more can arrive: the window or the memory is full.

It grows while all slots are busy. Once dispatched, it is one running unit: it holds its lanes until
its call has ended, nothing is taken back from it, and it is claimed or put back only as a whole.
Halves of a batch on which its process died go out first, see ``batch_bisection``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from itertools import pairwise
from operator import attrgetter

from attrs import frozen

from window_consumer.engine.partition import Partition
from window_consumer.engine.retry.failed_record import FailedRecord
from window_consumer.engine.scheduling.batch_bisection import BatchBisection
from window_consumer.engine.scheduling.dispatcher import SLICES_PER_SLOT, Dispatcher
from window_consumer.engine.scheduling.lanes import Lane, LaneHold
from window_consumer.engine.scheduling.record_queue import Place, RecordRun
from window_consumer.engine.scheduling.slices import Slice
from window_consumer.engine.scheduling.start_queue import Backlog, StartQueue
from window_consumer.model.record import Message


@frozen
class BatchRules:
    """The ``batch`` section of a worker's configuration; records and seconds."""

    max_records: int = 1000
    min_records: int = 1
    max_wait_s: float = 0.5


class Gathering:
    """The batch of one partition that has not been dispatched. Owner: poll thread."""

    __slots__ = ("_in_order", "_joined", "bytes", "hold", "messages", "seqs", "since")

    def __init__(self, run: RecordRun, hold: LaneHold, now: float):
        self.messages: list[Message] = run.messages
        self.seqs: Sequence[int] = run.seqs
        self.bytes = run.bytes
        self.hold = hold
        """The lanes of its records."""
        self.since = now
        """When its first record could start."""
        self._in_order = isinstance(run.seqs, range)
        self._joined = False

    def __len__(self) -> int:
        return len(self.messages)

    def join(self, run: RecordRun) -> None:
        """Add records whose lanes the batch already holds."""
        if self._in_order and RecordRun(self.messages, self.seqs, 0).is_followed_by(run):
            self.seqs = range(self.seqs[0], run.seqs[-1] + 1)
        else:
            self.seqs = [*self.seqs, *run.seqs]
            self._in_order = False
        if not self._joined:
            self._joined = True
            self.messages = self.messages.copy()  # the list belongs to the Source
        self.messages += run.messages
        self.bytes += run.bytes

    def sort(self) -> None:
        """Sort the records by offset: the lines of lanes were added one by one."""
        if self._in_order:
            return
        if any(later < earlier for earlier, later in pairwise(self.seqs)):
            # Sequence numbers differ, so no two messages are ever compared.
            pairs = sorted(zip(self.seqs, self.messages, strict=True), key=lambda pair: pair[0])
            self.seqs = [seq for seq, _ in pairs]
            self.messages = [message for _, message in pairs]
        first, last = self.seqs[0], self.seqs[-1]
        if last - first + 1 == len(self.seqs):
            self.seqs = range(first, last + 1)  # a run finishes as a whole, others one by one


class BatchDispatcher(Dispatcher):
    """Turns waiting records into batches. Owner: poll thread."""

    def __init__(  # noqa: PLR0913 - as above
        self,
        slots: int,
        max_slice_records: int,
        slices_per_slot: int,
        new: StartQueue,
        copies: StartQueue,
        rules: BatchRules,
        bisection: BatchBisection,
    ):
        super().__init__(slots, max_slice_records, slices_per_slot, new, copies)
        self._rules = rules
        self._bisection = bisection
        self._gathered: dict[Partition, Gathering] = {}

    @property
    def full(self) -> bool:
        """No further batch is wanted now."""
        return len(self._out) >= min(self.slots, self.present_slots) * self.slices_per_slot

    @property
    def has_enough(self) -> bool:
        """No batch lacks records."""
        gathered = self._gathered.values()
        waiting = self.new.startable + sum(map(len, gathered))
        enough = max(self._max_slice_records, SLICES_PER_SLOT * self._rules.max_records)
        return waiting >= enough and all(len(each) >= self._rules.min_records for each in gathered)

    @property
    def slice_records(self) -> int:
        """The most records a batch holds."""
        most = self._rules.max_records
        return most if self.longest is None else min(most, self.longest)

    def remove(self, partition: Partition) -> None:
        """Stop scheduling a partition; its batches in progress stay known until they return."""
        super().remove(partition)
        self._bisection.remove(partition)
        batch = self._gathered.pop(partition, None)
        if batch is not None and self.rates is not None:
            self.rates.give_back(partition, batch.messages)

    def has_chosen(self, partition: Partition) -> bool:
        """Return whether a partition has an undispatched batch, or halves of one."""
        return partition in self._gathered or partition in self._bisection.partitions()

    def release_gathered(self, partition: Partition) -> None:
        """Put the records of an undispatched batch back; their lanes are released."""
        batch = self._gathered.pop(partition, None)
        if batch is not None:
            batch.sort()
            if self.rates is not None:
                self.rates.give_back(partition, batch.messages)
            partition.ordering.put_back(batch.messages, batch.seqs)
            batch.hold.release()
        self.release_halves(partition)

    def release_all_gathered(self) -> None:
        """Put the records of all undispatched batches back."""
        for partition in [*self._gathered, *self._bisection.partitions()]:
            self.release_gathered(partition)

    def bisect(self, slice_: Slice) -> None:
        """Send the halves of a batch on which its process died."""
        self._bisection.bisect(slice_)

    def next_half(self, now: float) -> Slice | None:
        """Make a batch of the next half that may go out; None if none may."""
        half = self._bisection.next(self.rates)
        if half is None:
            return None
        if half.again:
            self._bisection.start(half)
            return super().again(half.again, now)
        size = sum(map(len, half.messages))
        slice_ = Slice(half.partition, half.messages, half.seqs, size, half.hold)
        return self._send_uncharged(slice_, now)

    def release_halves(self, partition: Partition) -> None:
        """Let the records of halves wait again: other records that are put back go before them."""
        self._bisection.dissolve(partition)
        for each in (partition, *partition.siblings):
            self.wake(each)

    def next_due(self, now: float) -> float:
        """Return when an incomplete batch goes out; infinity while no slot is free."""
        if not self._gathered or not self.idle_slots:
            return float("inf")
        copies_too = self.turns.has_room(self.slots, self.idle_slots, now)
        since = (
            each.since
            for partition, each in self._gathered.items()
            if copies_too or partition.retry_level.level is None
        )
        return min(since, default=float("inf")) + self._rules.max_wait_s

    def new_slices(self, now: float) -> Iterable[Slice]:
        """Yield the batches that should go out now, halves first."""
        self.length.learn()
        while not self.full and (slice_ := self.next_half(now)) is not None:
            yield slice_
        yield from self._slices(self.new, now)

    def _slices(self, queue: StartQueue, now: float) -> Iterable[Slice]:
        queue.begin()
        while (backlog := queue.next()) is not None:
            partition = backlog[0]
            batch = self._gather(backlog, now) if partition.gives_out else None
            if batch is None:
                queue.leave(backlog)
            elif self.full or not self._is_ready(batch, partition, now):
                queue.pass_over(backlog)
            else:
                queue.served(backlog)
                del self._gathered[partition]
                slice_ = self._made_of(batch, partition)
                self._send(slice_, now)
                yield slice_

    def sample(self, now: float, place: Place, but: Callable[[Lane], bool]) -> Slice | None:
        """Make a batch of one new record, perhaps from a batch that has not been sent."""
        if slice_ := super().sample(now, place, but):
            return slice_
        if not self._gathered:
            return None
        self.release_all_gathered()
        return super().sample(now, place, but)

    def single_copy(self, now: float) -> Slice | None:
        """Make a batch of one copy, as ``sample`` does."""
        self.release_all_gathered()
        return super().single_copy(now)

    def again(self, records: Sequence[FailedRecord], now: float) -> Slice:
        """Make a batch of records that failed before, all with the same number of attempts."""
        return super().again(sorted(records, key=attrgetter("seq")), now)

    def stuck(self, now: float) -> list[Slice]:  # noqa: ARG002 - what the others go by
        """Return nothing: a batch is one running unit."""
        return []

    def _gather(self, backlog: Backlog, now: float) -> Gathering | None:
        """Let the partition's batch grow as far as possible; return None if it has no record."""
        partition, records = backlog
        batch = self._gathered.get(partition)
        most = self.slice_records
        if batch is None:
            taken = records.take(most)
            if taken is None:
                return None
            batch = self._gathered[partition] = Gathering(*taken, now)
        while len(batch) < most:
            more = records.take_more(most - len(batch), batch.hold)
            if more is None:
                break
            batch.join(more)
        return batch

    def _is_ready(self, batch: Gathering, partition: Partition, now: float) -> bool:
        if len(batch) >= self.slice_records:
            return True
        if not self.idle_slots:
            return False
        return (
            len(batch) >= self._rules.min_records
            or now - batch.since >= self._rules.max_wait_s
            or partition.is_full
        )

    @staticmethod
    def _made_of(batch: Gathering, partition: Partition) -> Slice:
        batch.sort()
        return Slice(partition, batch.messages, batch.seqs, batch.bytes, batch.hold)

    def _send(self, slice_: Slice, now: float) -> None:
        slice_.is_batch = True
        super()._send(slice_, now)
