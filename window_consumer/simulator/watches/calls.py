"""Watches calls: their beginnings and ends, and the fates of their records."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence

from window_consumer.engine.decisions import Outlived
from window_consumer.engine.guards.stuck_calls import Stalled
from window_consumer.engine.retry.policy import RetryRules
from window_consumer.engine.retry.retry_topics import Level
from window_consumer.engine.scheduling.slices import Slice
from window_consumer.model.errors import (
    NotCalled,
    ProcessDiedError,
    ResultRefusedError,
    RetryLater,
    Skip,
    StalledError,
)
from window_consumer.model.record import Message
from window_consumer.simulator.history import SimulationHistory
from window_consumer.simulator.log_history import Lane, Member, SimulatedCall, Tenure
from window_consumer.simulator.watches.call_rate import CallRateWatch
from window_consumer.simulator.watches.call_start import StartWatch
from window_consumer.simulator.watches.lanes import LaneWatch
from window_consumer.simulator.watches.outages import Outages
from window_consumer.simulator.watches.parking import ParkWatch
from window_consumer.simulator.watches.poison import PoisonWatch
from window_consumer.simulator.watches.reassignment import ReassignmentWatch
from window_consumer.testing.events import Killed, Result, Started


class CallWatch:
    """Receives the calls of all members and passes them to the watches. Owner: one thread."""

    def __init__(self, history: SimulationHistory):
        self.history = history
        self.outages = Outages(history)
        self.poison = PoisonWatch(history)
        self.rate = CallRateWatch(history)
        self.kept = ReassignmentWatch(history)
        self._starts = StartWatch(history, self.kept)
        self._lanes = LaneWatch(history)
        self.parking = ParkWatch(history)
        self._batches = 0

    # ---- begun

    def claimed(self, member: Member, slice_: Slice, message: Message) -> Tenure:
        """Record that a slot claimed a record."""
        self.rate.taken(member, slice_, message)
        tenure = self.history.tenure_of(member, slice_.partition)
        self._starts.claimed(tenure, message.offset(), attempt_of(slice_))
        return tenure

    def started(self, tenure: Tenure, message: Message, attempt: int) -> SimulatedCall:
        """Record that a handler call begins."""
        call = self._call(tenure, message, attempt)
        self._started(call)
        return call

    def started_together(
        self, tenure: Tenure, messages: Sequence[Message], attempt: int
    ) -> list[SimulatedCall]:
        """Record a batch handler's call: one simulated call begins for each record."""
        if [m.offset() for m in messages] != sorted(m.offset() for m in messages):
            self.history.violate(f"{tenure.name}: a batch is not in order: {messages}")
        self._batches += 1
        calls = [self._call(tenure, message, attempt) for message in messages]
        together = {call.offset for call in calls}
        for call in calls:
            call.batch = f"batch {self._batches}"
            self._started(call, together)
        return calls

    def _call(self, tenure: Tenure, message: Message, attempt: int) -> SimulatedCall:
        history = self.history
        record = history.record_of(tenure, message)
        return SimulatedCall(tenure, record, history.lane_of(message), attempt)

    def _started(self, call: SimulatedCall, together: Collection[int] = ()) -> None:
        """Record that a call begins, in one batch with these offsets."""
        history, tenure, attempt = self.history, call.tenure, call.attempt
        if history.trace is not None:
            history.record(f"{tenure.member} calls {tenure.name}@{call.offset} attempt {attempt}")
        if call.offset not in tenure.abandoned:
            self._starts.begins(call)
        self._lanes.begins(call, together)
        self.parking.begins(call)
        tenure.running.add(call.offset)
        tenure.attempts[call.offset] = attempt
        place = (history.topic_of(call.record.ledger), tenure.name.partition, call.offset)
        lane = None if call.lane is None else str(call.lane)
        history.events.append(
            Started(str(tenure.member), *place, lane, history.now(), attempt, call.batch)
        )

    # ---- ended

    def ended(self, call: SimulatedCall, error: Exception | None, *, is_open: bool = False) -> None:
        """Record that a call has ended; ``is_open``: its results must be acked first."""
        tenure = call.tenure
        tenure.running.discard(call.offset)
        if isinstance(error, NotCalled) and call.offset not in tenure.abandoned:
            tenure.attempts[call.offset] -= 1
        self._lanes.ends(call)
        result = self._result(call, error)
        counts = tenure.current and call.offset not in tenure.abandoned
        self.outages.ended(call, result)
        self.poison.ended(call, result)
        if not is_open and result in {"done", "skipped", "dropped"}:
            self.parking.ended(call.record)
        if self.history.trace is not None:
            late = "" if counts else " (late)"
            self.history.record(f"{tenure.member} ends {tenure.name}@{call.offset}: {result}{late}")
        self._add_end(call, "failed" if is_open or not (counts or error is None) else result)
        if counts and not is_open:
            self._conclude(call, error, result)

    def _add_end(self, call: SimulatedCall, result: Result) -> None:
        ledger = call.record.ledger
        self.history.ended(call.tenure, ledger, call.offset, call.lane, result, call.attempt)

    def _conclude(self, call: SimulatedCall, error: Exception | None, result: Result) -> None:
        tenure, offset = call.tenure, call.offset
        if result == "failed":
            tenure.last_failures[offset] = (self.history.now(), error, tenure.spared(offset))
        elif result == "spent":
            tenure.leaving.add(offset)
        else:
            self.history.finished(tenure, offset)
            self.parking.ended(call.record)
            if result == "dropped":
                tenure.dropped.add(offset)

    def interrupted(self, call: SimulatedCall) -> None:
        """Record that a call was ended with its partition; its record stays open."""
        tenure = call.tenure
        tenure.running.discard(call.offset)
        self._lanes.ends(call)
        self.outages.ended(call, "failed")
        self.history.record(f"{tenure.member} has ended the call for {tenure.name}@{call.offset}")
        self._add_end(call, "failed")

    def died(self, calls: Sequence[SimulatedCall]) -> None:
        """Record that a slot's process died on these calls.

        A single call is to blame. Of several calls none is charged, because the cause is unknown;
        but if each record gets only one call, all are over.
        """
        if len(calls) == 1 or not self.history.plan.repeats:
            for call in calls:
                deaths = call.tenure.deaths
                deaths[call.offset] = deaths.get(call.offset, 0) + 1
                self.ended(call, ProcessDiedError("died"))
            return
        for call in calls:
            self.interrupted(call)
            call.tenure.attempts[call.offset] -= 1

    def ended_together(
        self, calls: Sequence[SimulatedCall], errors: Sequence[Exception | None]
    ) -> None:
        """Record the end of a batch handler's call with the result of each record.

        All retried records of a lane wait as long as the first of them. If a lane blocks, all
        records behind that one are called again.
        """
        firsts: dict[Lane, Exception] = {}
        for call, error_of in zip(calls, errors, strict=True):
            error = error_of
            retry = call.tenure.member.rules.retry
            again = error_of is not None and not (
                isinstance(error_of, (Skip, NotCalled)) or retry.is_fatal(error_of)
            )
            if call.lane is not None:
                if call.lane in firsts and (again or retry.on_failure == "block"):
                    error = firsts[call.lane]
                elif again and error_of is not None:
                    firsts.setdefault(call.lane, error_of)
            self.ended(call, error)

    def ended_at_turn(self, tenure: Tenure, message: Message, error: Exception) -> None:
        """Record that a rule ended a record at its turn, like a call that raises this."""
        call = self._call(tenure, message, tenure.attempts.get(message.offset(), 0) + 1)
        call.at_turn = True
        self._started(call)
        self.ended(call, error)

    def acked(self, call: SimulatedCall) -> None:
        """Record that all results of a call are acked: its record is done."""
        self._conclude(call, None, "done")
        self._add_end(call, "done")

    def refused(self, call: SimulatedCall) -> None:
        """Record that a result was permanently refused: the call counts as failed."""
        error = ResultRefusedError("made to be refused")
        result = self._result(call, error)
        self.outages.ended(call, result)
        self.poison.ended(call, result)
        self._conclude(call, error, result)
        if result in ("dropped", "spent"):
            self._add_end(call, result)

    # ---- given up

    def abandoned(self, member: Member, stalled: Stalled) -> None:
        """Record that a member abandons a stuck call; its record or batch leaves."""
        slice_ = stalled.slice_
        for message in slice_.messages if slice_.is_batch else slice_.messages[-1:]:
            self._abandoned(member, slice_, message)

    def _abandoned(self, member: Member, slice_: Slice, message: Message) -> None:
        tenure = self.history.tenure_of(member, slice_.partition)
        offset: int = message.offset()
        self.history.record(f"{member} abandons the call for {tenure.name}@{offset}")
        # A slot may have claimed it without beginning the call, which then begins later.
        tenure.attempts[offset] = attempt_of(slice_)
        tenure.abandoned.add(offset)
        retry = tenure.member.rules.retry
        if retry.when_spent == "drop" and not _further(retry, self._level(tenure)):
            self.history.finished(tenure, offset)
            lane, attempt = self.history.lane_of(message), slice_.call.attempt
            self.history.ended(tenure, tenure.ledger, offset, lane, "dropped", attempt)
        else:
            tenure.leaving.add(offset)

    def reported(self, member: Member, calls: Iterable[Outlived]) -> None:
        """Record the calls that a member logged as outlived."""
        self._lanes.reported(member, calls)

    def gone(self, member: Member) -> None:
        """Record that a member's process has ended, and its calls with it."""
        self._lanes.gone(member)
        self.history.events.append(Killed(str(member), self.history.now()))

    # ---- the rules

    def _result(self, call: SimulatedCall, error: Exception | None) -> Result:
        retry = call.tenure.member.rules.retry
        if error is None or isinstance(error, Skip):
            return "done" if error is None else "skipped"
        stalled = isinstance(error, StalledError)
        if isinstance(error, ProcessDiedError):
            deaths = call.tenure.deaths[call.offset]
            is_spent = retry.is_final or deaths >= retry.crash_attempts
            left: Result = "dropped" if retry.when_spent == "drop" else "spent"
            return left if is_spent else "failed"
        if isinstance(error, NotCalled) or (retry.is_fatal(error) and not stalled):
            end = error.end if isinstance(error, NotCalled) else retry.when_spent
            return "dropped" if end == "drop" else "spent"
        level = self._level(call.tenure)
        further = _further(retry, level)
        at_once = stalled and not retry.retries_stalled
        waits_long = isinstance(error, RetryLater) and error.after_s > retry.backoff_max_s
        if retry.on_failure == "block":
            return "failed"
        if call.attempt < retry.allowed(level) and not (waits_long and further) and not at_once:
            return "failed"
        return "dropped" if retry.when_spent == "drop" and not further else "spent"

    def _level(self, tenure: Tenure) -> Level | None:
        return self.history.retry_level(tenure.name).level


def attempt_of(slice_: Slice) -> int:
    """Return the number of calls for a slice's records, without calls that did not happen."""
    return slice_.call.attempt - slice_.call.uncalled


def _further(retry: RetryRules, level: Level | None) -> list[Level]:
    """Return the levels that a record at this level may still reach."""
    return [each for each in retry.levels if level is None or each.delay_s > level.delay_s]
