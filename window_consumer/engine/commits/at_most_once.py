"""At most once: a record starts after the commit that counts it as finished was acked.

Slices wait here between the dispatcher and the slots. So the only records committed before their
calls are those that slots run or have queued, whatever the order, batches or shares. A crash loses
at most those. A revocation or a stop starts the committed records that have not started; those that
do not end in time are lost, and counted.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from heapq import merge
from operator import itemgetter

from attrs import frozen

from window_consumer.engine.commits.commit_metadata import decode
from window_consumer.engine.commits.delivery_guarantee import DeliveryGuarantee, ranges_from
from window_consumer.engine.counters import Counters
from window_consumer.engine.partition import Partition
from window_consumer.engine.partition_state import PartitionState
from window_consumer.engine.scheduling.slices import Slice
from window_consumer.engine.window import Window
from window_consumer.model.outcome import Outcome
from window_consumer.model.protocols import Commit
from window_consumer.model.record import TopicPartition

_ANY_NUMBER = 2**31
"""No limit on the cells of uncommitted records: the window itself limits them."""


class CommittedWindow(Window):
    """A window that tracks which of its records may start. Owner: poll thread."""

    def __init__(self, next_offset: int, max_cells: int, cell_records: int):
        super().__init__(next_offset, max_cells, cell_records)
        self.uncommitted = Window(next_offset, _ANY_NUMBER, cell_records)
        """The same records. Those that may start, or ended without starting, count as finished."""

    def append(self, offsets: range, now: float, outcome: Outcome = Outcome.OPEN) -> int:
        self.uncommitted.append(offsets, now, outcome)
        return super().append(offsets, now, outcome)

    def finish(self, seqs: Sequence[int], outcome: Outcome, now: float) -> None:
        super().finish(seqs, outcome, now)
        self.commit(seqs, now)

    def commit(self, seqs: Sequence[int], now: float) -> None:
        """Let records start; records that may start already stay as they are."""
        for start, stop in _runs(seqs):
            self.uncommitted.finish_rest(start, stop)
        self.uncommitted.slide(now)

    def may_start(self, seqs: Sequence[int]) -> bool:
        """Return whether all of these records are committed."""
        return not any(map(self.uncommitted.is_open, seqs))

    def is_lost(self, seq: int) -> bool:
        """Return whether a record would be lost if its window ended now."""
        return self.is_open(seq) and not self.uncommitted.is_open(seq)

    def progress(self, started: Iterable[tuple[int, int]]) -> tuple[int, Iterator[range]]:
        """Return the next offset to commit and the ranges beyond it.

        They cover the records that may start and those in ``started``, ascending runs of sequence
        numbers.
        """
        window = self.uncommitted
        runs = list(_joined(merge(window.finished_seqs(), started)))
        first = window.cells[0].first_seq if window.cells else window.offsets.next_seq
        while runs and runs[0][0] <= first:
            first = max(first, runs.pop(0)[1])
        offsets = window.offsets
        at_end = first == offsets.next_seq
        next_offset = offsets.next_offset if at_end else offsets.offset_of(first)
        return next_offset, (window.offsets_between(*run) for run in runs)


class AtMostOnce(DeliveryGuarantee):
    """Commits the records of slices, then lets the slices go to the slots."""

    repeats = False
    recalls_lost = False

    def __init__(
        self,
        partitions: Mapping[TopicPartition, Partition],
        counters: Counters,
        wake: Callable[[Partition], None],
    ):
        super().__init__(partitions, counters, wake)
        self._waiting: dict[Partition, list[Slice]] = {}
        """Slices that no commit in flight covers."""
        self._asked: dict[Partition, list[_Asked]] = {}
        """Slices whose records the commit in flight covers."""
        self._ready: list[Slice] = []

    def window(self, next_offset: int, cells: int, cell_records: int) -> Window:
        """Return a window that tracks what is committed."""
        return CommittedWindow(next_offset, cells, cell_records)

    def begin(self, partition: Partition) -> None:
        """Let a revocation start the committed records."""
        partition.starts_while_revoked = True

    @property
    def awaits_ack(self) -> bool:  # type: ignore[override] # follows from what waits
        """Slices wait for the ack of a commit."""
        return any(self._asked.values())

    @property
    def is_due(self) -> bool:  # type: ignore[override] # as above
        """Slices wait for a commit that can be made now."""
        return any(not partition.commit.in_flight for partition in self._waiting)

    def starting(self, slices: list[Slice]) -> list[Slice]:
        """Hold slices until their records are committed; return those that may go to the slots."""
        ready, self._ready = self._ready, []
        for slice_ in slices:
            partition = slice_.partition
            if _window(partition).may_start(slice_.seqs[:1]) and _may_start(slice_):
                ready.append(slice_)
            else:
                self._waiting.setdefault(partition, []).append(slice_)
        return ready

    def commits(self, now: float) -> list[Commit]:
        """Commit each partition whose slices wait, and at intervals those that have changed."""
        due = [
            each
            for each in self._partitions.values()
            if each.is_assigned
            and not each.commit.in_flight
            and (each in self._waiting or each.commit.due(now))
        ]
        return self._commits(due, now, clean=False)

    def commit(self, partition: Partition, now: float, *, clean: bool) -> Commit | None:
        """Take a snapshot that counts the records of waiting slices as finished."""
        commit = super().commit(partition, now, clean=clean)
        if commit is not None:
            waiting = self._waiting.pop(partition, ())
            self._asked[partition] = [_Asked(each, each.seqs) for each in waiting]
        elif partition.commit.is_complete:  # the broker has it already
            for each in self._waiting.pop(partition, ()):
                self._start(_Asked(each, each.seqs), now)
        return commit

    def progress(self, partition: Partition) -> tuple[int, Iterator[range]]:
        """Return the records that may start, now or after this commit."""
        window = _window(partition)
        waiting = self._waiting.get(partition, ())
        runs = sorted(run for slice_ in waiting for run in _runs(slice_.seqs))
        next_offset, ranges = window.progress(runs)
        if partition.idle and not window.cells:
            next_offset = max(next_offset, partition.end_of_taken)
        return next_offset, ranges_from(next_offset, partition.with_earlier(ranges))

    def acked(self, partition: Partition, commit: Commit) -> None:
        """Let slices go if the commit covers their records."""
        is_complete = partition.commit.is_complete
        for asked in self._asked.pop(partition, ()):
            if is_complete or _has_all(commit, partition, asked.seqs):
                self._start(asked, partition.commit.sent_at)
            else:
                self._waiting.setdefault(partition, []).append(asked.slice_)
                partition.commit.changed = True

    def refused(self, partition: Partition) -> None:
        """Let the slices of a refused commit wait for the next one."""
        asked = [each.slice_ for each in self._asked.pop(partition, ())]
        if asked:
            self._waiting[partition] = [*asked, *self._waiting.get(partition, ())]

    def unstarted(self, partition: Partition, slices: Sequence[Slice]) -> list[Slice]:
        """Return the slices whose records may be uncommitted."""
        asked = (each.slice_ for each in self._asked.get(partition, ()))
        held = {*self._waiting.get(partition, ()), *asked}
        return [each for each in slices if each in held]

    def revoking(self, partition: Partition) -> None:
        """Let only committed records wait to start; emptied slices go out."""
        self.released(partition)
        ordering, window = partition.ordering, _window(partition)
        kept = sorted(
            (each for each in ordering.waiting() if window.may_start((each[0],))), key=itemgetter(0)
        )
        ordering.clear()
        if kept:
            ordering.put_back([message for _, message in kept], [seq for seq, _ in kept])
            self._wake(partition)

    def released(self, partition: Partition) -> None:
        """Let emptied slices go out, so that the slots return them."""
        self._ready += [each.slice_ for each in self._asked.pop(partition, ())]
        self._ready += self._waiting.pop(partition, ())

    def is_draining(self, partition: Partition) -> bool:
        """Return whether committed records of a revoked partition wait to start."""
        if partition.state is not PartitionState.REVOKING or not partition.starts_calls:
            return False
        return next(iter(partition.ordering.waiting()), None) is not None

    def is_lost(self, partition: Partition, seq: int) -> bool:
        """Return whether a record without an outcome is lost with its partition."""
        return _window(partition).is_lost(seq)

    def _start(self, asked: _Asked, now: float) -> None:
        """Let a slice go; records taken back from it may start later without another commit."""
        _window(asked.slice_.partition).commit(asked.seqs, now)
        self._ready.append(asked.slice_)


@frozen
class _Asked:
    """A slice, and its records when the commit was made: some may have been taken back since."""

    slice_: Slice
    seqs: Sequence[int]


def _has_all(commit: Commit, partition: Partition, seqs: Sequence[int]) -> bool:
    """Return whether an incomplete commit covers these records."""
    note = decode(commit.metadata)
    ranges = () if note is None else note.finished
    offset_of = partition.window.offsets.offset_of
    return all(
        offset < commit.next_offset or any(offset in each for each in ranges)
        for offset in map(offset_of, seqs)
    )


def _window(partition: Partition) -> CommittedWindow:
    window = partition.window
    assert isinstance(window, CommittedWindow)  # ``AtMostOnce.window`` makes all of them
    return window


def _may_start(slice_: Slice) -> bool:
    return _window(slice_.partition).may_start(slice_.seqs)


def _runs(seqs: Sequence[int]) -> Iterator[tuple[int, int]]:
    """Yield ascending runs of consecutive numbers."""
    if isinstance(seqs, range):
        if seqs:
            yield seqs.start, seqs.stop
        return
    yield from _joined((seq, seq + 1) for seq in sorted(seqs))


def _joined(runs: Iterable[tuple[int, int]]) -> Iterator[tuple[int, int]]:
    """Join ascending runs that touch or overlap."""
    begin = end = -1
    for start, stop in runs:
        if start <= end:
            end = max(end, stop)
            continue
        if begin >= 0:
            yield begin, end
        begin, end = start, stop
    if begin >= 0:
        yield begin, end
