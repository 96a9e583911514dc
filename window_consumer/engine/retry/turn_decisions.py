"""Carries out rules' decisions about records before their first calls, see ``turn``."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

from window_consumer.engine.guards.backpressure import RESUME_ROOM
from window_consumer.engine.partition import Partition
from window_consumer.engine.partition_state import STOPS_EVERYTHING
from window_consumer.engine.retry.failed_record import FailedRecord, Forward
from window_consumer.engine.retry.failed_records import FailedRecords
from window_consumer.engine.retry.policy import Spent
from window_consumer.engine.retry.record_outcomes import RecordOutcomes
from window_consumer.engine.retry.record_state import RecordState
from window_consumer.engine.scheduling.dispatcher import Dispatcher
from window_consumer.engine.scheduling.lanes import Lane
from window_consumer.engine.turn import (
    CopyTo,
    DecidedRecord,
    HoldUntil,
    HoldUntilReleased,
    Leave,
    Turns,
)
from window_consumer.model.errors import CallAgain
from window_consumer.model.fault import Failure, Fault
from window_consumer.model.record import Message


class TurnDecisions:
    """Lets decided records wait, leave or finish. Owner: poll thread."""

    def __init__(
        self,
        turns: Turns,
        failed_records: FailedRecords,
        dispatcher: Dispatcher,
        outcomes: RecordOutcomes,
    ):
        self.turns = turns
        self._records = failed_records
        self._dispatcher = dispatcher
        self._outcomes = outcomes

    def carry_out(self, now: float) -> None:
        """Carry out the decisions about records before their first calls."""
        turns = self.turns
        if not (turns.decided or turns.left):
            return
        decided, turns.decided = turns.decided, []
        holds, turns.holds = turns.holds, []
        left, turns.left = turns.left, []
        turns.was_full = bool(left and decided)
        # Records that end here may release one that is held in the same tick, so held ones go
        # first.
        for each in sorted(decided, key=_comes_later):
            each.partition.unreadable.discard(each.message.offset())
            self._end_turn(each, now)
        for hold in holds:
            hold.release()
        served = dict.fromkeys(each.partition for each in decided)
        for partition in sorted(left, key=served.__contains__):  # the others are next
            self._dispatcher.wake(partition)
        for partition in served:
            self._outcomes.advance(partition, now)

    def make_room(self) -> None:
        """Let held records at the start of full windows be copied if the whole window is held."""
        for partition, held in self._records.all_held_by_rule():
            leaves = partition.is_assigned and partition.holds.isdisjoint(STOPS_EVERYTHING)
            if partition.is_full and leaves:
                for offset, turn in self.turns.rotated(partition, _at_start(partition, held)):
                    failed = self._records.release_held(partition, offset)
                    if failed is not None:
                        self._copy(failed, turn)

    def ask_again(self, partitions: Iterable[Partition]) -> None:
        """Give these partitions' records that a rule holds another turn."""
        for partition in partitions:
            held = self._records.held_by_rule(partition)
            if held and partition.is_assigned:
                self._wait_in_line(partition, sorted(held.values(), key=lambda each: each.seq))

    def _wait_in_line(self, partition: Partition, records: Sequence[FailedRecord]) -> None:
        """Give held records another turn, in order."""
        for failed in records:
            self._records.finish(failed)
        messages = [failed.message for failed in records]
        partition.ordering.put_back(messages, [failed.seq for failed in records])

    def release(self, partition: Partition, offset: int, leave: Leave | None, now: float) -> bool:
        """Let a record that a rule holds be called or leave; return False if it is not held.

        While another record holds its lane, it waits in line and gets another turn: a record may
        have two copies, and a rule releases both.
        """
        held = self._records.held_by_rule(partition).get(offset)
        if held is not None and leave is None and partition.ordering.lanes.is_held(held.lane):
            self._wait_in_line(partition, [held])
            return True
        failed = self._records.release_held(partition, offset)
        if failed is None:
            return False
        if leave is None:
            self._records.move(failed, RecordState.READY)
            self._dispatcher.wake(partition)  # the partition may rest
        else:
            record = partition, failed.message, failed.seq, failed.lane
            self._outcomes.leave_uncalled(*record, leave.failure, now)
        return True

    def refused(
        self,
        partition: Partition,
        message: Message,
        seq: int,
        lane: Lane | None,
        refusal: Failure,
        now: float,
    ) -> bool:
        """Let a rule decide about a record whose result was refused; False if none does."""
        turn = self.turns.refused(partition, message, refusal, now)
        if turn is None:
            return False
        self._end_turn(DecidedRecord(partition, message, seq, lane, turn), now)
        return True

    def _end_turn(self, decided: DecidedRecord, now: float) -> None:
        partition, message, seq = decided.partition, decided.message, decided.seq
        turn = decided.turn
        if isinstance(turn, Leave):
            self._outcomes.leave_uncalled(partition, message, seq, decided.lane, turn.failure, now)
        elif isinstance(turn, HoldUntil):
            self._outcomes.fail(partition, message, seq, decided.lane, held(turn.due - now), now)
        elif isinstance(turn, HoldUntilReleased):
            self._records.hold_until_released(uncalled(decided, now))
        elif isinstance(turn, CopyTo):
            failed = self._records.of(partition).get(seq)
            if failed is None:
                failed = forwarded(decided, now)
                self._records.enter(failed)
            self._copy(failed, turn)
        else:
            self._outcomes.finish(partition, [message], (seq,), turn.outcome, now)

    def _copy(self, failed: FailedRecord, turn: CopyTo) -> None:
        failed.spent, failed.forward = Spent(turn.reason), Forward(turn.copy, turn.outcome)
        self._records.move(failed, RecordState.LEAVING)


def _comes_later(decided: DecidedRecord) -> bool:
    """Return False, which sorts first, for a record that is held until released."""
    return not isinstance(decided.turn, HoldUntilReleased)


def held(after_s: float) -> Failure:
    """Return the failure of a record that is called after ``after_s`` seconds."""
    why = "the record waits for its time"
    return Failure(CallAgain(max(0.0, after_s), why), Fault("", why, "", ""))


def uncalled(decided: DecidedRecord, now: float) -> FailedRecord:
    """Return a record whose first call waits, as a failed record that is called again."""
    return FailedRecord(
        decided.partition,
        decided.message,
        decided.seq,
        decided.lane,
        attempts=1,
        failure=held(0.0),
        first_failure=now,
        last_failure=now,
        uncalled=1,
    )


def forwarded(decided: DecidedRecord, now: float) -> FailedRecord:
    """Return a record that leaves with a copy instead of a call."""
    why = "the record is copied elsewhere"
    return FailedRecord(
        decided.partition,
        decided.message,
        decided.seq,
        decided.lane,
        attempts=0,
        failure=Failure(LookupError(why), Fault("", why, "", "")),
        first_failure=now,
        last_failure=now,
    )


def _at_start(partition: Partition, held: Mapping[int, FailedRecord]) -> Iterator[Message]:
    """Yield the held records whose copies make enough room for the partition to be fetched."""
    first = partition.window.first_cells(RESUME_ROOM)
    for offset in sorted(held):
        if held[offset].seq not in first:
            break
        yield held[offset].message
