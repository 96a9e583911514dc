"""A rule about turns, and a watch: records that it decides about are called later or not at all."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from window_consumer.engine.partition import Partition
from window_consumer.engine.retry.failed_record import FailedRecord
from window_consumer.engine.scheduling.slices import Slice
from window_consumer.engine.turn import Finish, HoldUntil, Leave, Turn, TurnRule
from window_consumer.model.errors import Expired, NoHandlerMatched
from window_consumer.model.fault import Failure, Fault
from window_consumer.model.outcome import Outcome
from window_consumer.model.record import Message
from window_consumer.simulator.log_history import Member, TurnKind, due_ms, kind_of
from window_consumer.simulator.watches.calls import CallWatch


class ExpiredAtTurn(Expired):
    """The record leaves at its turn."""


class SimulatedTurns(TurnRule):
    """The rule of one member; it reports its decisions. Owner: one thread."""

    def __init__(self, calls: CallWatch, member: Member):
        self._call_watch = calls
        self._member = member
        plan = calls.history.plan
        self._share = plan.handlers.turns
        self._holds = not plan.parks
        """Whether it holds records; no other rule is then asked about them."""

    def turns(
        self, partition: Partition, messages: Sequence[Message], now: float, wall_ms: float
    ) -> Mapping[int, Turn]:
        """See TurnRule."""
        delivered = self._call_watch.history.tenure_of(self._member, partition).delivered
        found: dict[int, Turn] = {}
        for index, message in enumerate(messages):
            record = delivered[message.offset()]
            kind = kind_of(record.hop, self._share)
            if kind is TurnKind.HOLD:
                if self._holds and due_ms(record) > wall_ms:
                    found[index] = HoldUntil(now + (due_ms(record) - wall_ms) / 1000)
            elif kind is not None:
                found[index] = _turn(kind)
        return found

    def failed(self, failed: FailedRecord, now: float) -> None:
        """Record that a record leaves at its turn."""
        del now
        error = failed.failure.error
        if isinstance(error, ExpiredAtTurn):
            tenure = self._call_watch.history.tenure_of(self._member, failed.partition)
            self._call_watch.ended_at_turn(tenure, failed.message, error)

    def finished(
        self,
        partition: Partition,
        messages: Sequence[Message],
        outcome: Outcome,
        slice_: Slice | None,
        now: float,
    ) -> None:
        """Record that records are finished at their turn."""
        del now
        if slice_ is None and outcome is NoHandlerMatched.outcome:
            tenure = self._call_watch.history.tenure_of(self._member, partition)
            for message in messages:
                self._call_watch.ended_at_turn(tenure, message, NoHandlerMatched("at its turn"))


def _turn(kind: TurnKind) -> Turn:
    if kind is TurnKind.FINISH:
        return Finish(NoHandlerMatched.outcome)
    error = ExpiredAtTurn("old", "drop" if kind is TurnKind.DROP else "dead_letter")
    return Leave(Failure(error, Fault("SimulatedError", "old", "", "02")))
