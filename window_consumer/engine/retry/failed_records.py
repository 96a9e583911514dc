"""All failed records of a worker, and the state of each.

Only this object moves a record from one state to the next, see ``record_state``. Other modules
(``queue``, ``completion``, the guards) decide what follows a failed call.

A waiting record occupies no slot. Until it has its outcome it is open, its lane is busy and its
offset is held. A record that is held until released leaves its lane free.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence

from window_consumer.engine.partition import Partition
from window_consumer.engine.retry.failed_record import FailedRecord, Nowhere
from window_consumer.engine.retry.ready_calls import ReadyCalls
from window_consumer.engine.retry.record_line import (
    HeldCalls,
    KeptElsewhere,
    Places,
    RecordLine,
    RuleHeldRecords,
    WaitingRecords,
)
from window_consumer.engine.retry.record_state import RecordState

_NONE: dict[int, FailedRecord] = {}


class FailedRecords:
    """The failed records of one worker without an outcome. Owner: poll thread."""

    def __init__(self) -> None:
        self._of: dict[Partition, dict[int, FailedRecord]] = {}
        """By sequence number, in the order of their first failures."""
        self._waiting = WaitingRecords()
        self.ready = ReadyCalls()
        self._held = HeldCalls()
        self._held_by_rule = RuleHeldRecords()
        self.spent = RecordLine(RecordState.HELD_BY_BREAKER)
        """Records that the breaker decides about, in this order."""
        self._running = KeptElsewhere(RecordState.RUNNING)
        self._leaving = RecordLine(RecordState.LEAVING)
        self._unacked = RecordLine(RecordState.UNACKED)
        """Copies for partitions that have been released stay until the broker has answered."""
        self._gone = Nowhere(RecordState.GONE)
        every: tuple[Places, ...] = (
            self._waiting,
            self.ready,
            self._held,
            self._held_by_rule,
            KeptElsewhere(RecordState.CHOSEN),
            self._running,
            KeptElsewhere(RecordState.PRODUCING),
            self.spent,
            self._leaving,
            self._unacked,
            KeptElsewhere(RecordState.STOPPING),
            self._gone,
        )
        self._places: Mapping[RecordState, Places] = {place.state: place for place in every}

    # ---- questions

    def of(self, partition: Partition) -> dict[int, FailedRecord]:
        """Return a partition's failed records by sequence number, in order of first failure.

        Only this object changes them.
        """
        return self._of.get(partition, _NONE)

    def __iter__(self) -> Iterator[FailedRecord]:
        """Yield all records of partitions that have not been released."""
        for records in self._of.values():
            yield from records.values()

    def __len__(self) -> int:
        return sum(map(len, self._of.values()))

    @property
    def unacked(self) -> Collection[FailedRecord]:
        """Records whose copies are on their way to the broker."""
        return self._unacked

    @property
    def leaving(self) -> int:
        """How many copies wait to be written."""
        return len(self._leaving)

    @property
    def first_leaving(self) -> FailedRecord | None:
        """The record whose copy is sent next."""
        return self._leaving.first

    def held(self, partition: Partition) -> Collection[FailedRecord]:
        """Return the records whose next call waits for their partition."""
        return self._held.of(partition)

    def held_by_rule(self, partition: Partition) -> Mapping[int, FailedRecord]:
        """Return a partition's records that a rule holds, by offset."""
        return self._held_by_rule.by_partition.get(partition, _NONE)

    def all_held_by_rule(self) -> list[tuple[Partition, Mapping[int, FailedRecord]]]:
        """Return partitions whose open records are all held by a rule, with those by offset."""
        found = self._held_by_rule.by_partition.items()
        return [(each, held) for each, held in found if len(held) == each.window.open]

    def next_due(self) -> float | None:
        """Return when the next waiting record is due; None if none waits."""
        first = self._waiting.first
        return None if first is None else first.due

    # ---- transitions

    def enter(self, failed: FailedRecord) -> None:
        """Take over a record that has just failed: its lane is busy until it has its outcome."""
        self._keep(failed)
        failed.hold = failed.partition.ordering.acquire((failed.lane,))

    def hold_until_released(self, failed: FailedRecord) -> None:
        """Take over a record that was not called; its lane is free until it is released."""
        self._keep(failed)
        _put(failed, self._held_by_rule)

    def release_held(self, partition: Partition, offset: int) -> FailedRecord | None:
        """Return a held record and acquire its lane; None if it is not held.

        The caller moves it to its next state.
        """
        failed = self._held_by_rule.get(partition, offset)
        if failed is not None:
            failed.hold = partition.ordering.acquire((failed.lane,))
        return failed

    def _keep(self, failed: FailedRecord) -> None:
        self._of.setdefault(failed.partition, {})[failed.seq] = failed

    def move(self, failed: FailedRecord, state: RecordState) -> None:
        """Move a record to another state, at the end of its line.

        Raise UnknownRecordStepError, and change nothing, if the table does not allow the step.
        """
        _put(failed, self._places[state])

    def wait(self, failed: FailedRecord, due: float) -> None:
        """Let a record wait for its next call, or to be published again."""
        failed.due = due
        _put(failed, self._waiting)

    def release_due(self, now: float) -> None:
        """Release records whose wait is over, including those that waited for their rate."""
        self.ready.refill()
        ready, leaving = self.ready, self._leaving
        for failed in self._waiting.take_due(now):
            (ready if failed.spent is None else leaving).append(failed)

    def put_back(self, records: Sequence[FailedRecord]) -> None:
        """Let records whose calls did not start be called before all others."""
        for failed in reversed(records):
            failed.state.to(RecordState.READY)
            failed.place.remove(failed)
            self.ready.put_first(failed)

    def next_calls(self, at_most: int) -> list[FailedRecord]:
        """Take the records to call now, of one partition and equal attempts; see ``ReadyCalls``."""
        while (line := self.ready.next_line()) is not None:
            partition = line.partition
            if not partition.starts_calls:
                for failed in list(line):
                    self.move(failed, RecordState.HELD_BY_PARTITION)
            elif records := self.ready.take(line, at_most):
                self.start(records)
                return records
        return []

    def start(self, records: Iterable[FailedRecord]) -> None:
        """Record that a slice takes these records."""
        for failed in records:
            _put(failed, self._running)

    def call_held(self, partition: Partition) -> None:
        """Release records that came due while their partition was held back, if it no longer is."""
        if partition.starts_calls:
            for failed in list(self._held.of(partition)):
                self.move(failed, RecordState.READY)

    def leave_first(self, failed: FailedRecord) -> None:
        """Let a record leave before all others."""
        self.move(failed, RecordState.LEAVING)
        self._leaving.put_first(failed)

    def finish(self, failed: FailedRecord) -> None:
        """Let go of a record that has its outcome, and release its lane."""
        _put(failed, self._gone)
        records = self._of.get(failed.partition)
        if records is not None:
            del records[failed.seq]
        failed.hold.release()

    def remove(self, partition: Partition) -> None:
        """Let go of the records of a released partition, except unacked copies."""
        for failed in self._of.pop(partition, _NONE).values():
            if failed.state is not RecordState.UNACKED:
                self.move(failed, RecordState.GONE)


def _put(failed: FailedRecord, place: Places) -> None:
    """Move a record to a place, if the table allows it."""
    before = failed.place
    if place.state not in before.state.following:
        before.state.refuse(place.state)
    before.remove(failed)
    place.append(failed)
