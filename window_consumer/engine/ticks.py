"""What one worker does next: events only record what happened, a tick decides about all of it."""

from __future__ import annotations

from window_consumer.engine.decisions import Decisions, Outlived
from window_consumer.engine.guards.start_gate import spent_call
from window_consumer.engine.observer import Observer
from window_consumer.engine.parts import EngineParts
from window_consumer.engine.scheduling.dispatcher import COMPANY_S
from window_consumer.engine.scheduling.slice_length import SLICE_TARGET_S
from window_consumer.model.errors import CallsHangError, WorkerStoppedError

SUSPECTS = 20
"""How many calls of a slice are suspects after a freeze: 20 calls of 0.25 ms make 5 ms."""

ACK_S = 0.001
"""How often the client is asked for the ack of a commit for which slices wait."""


class Ticks:
    """Decides, and knows when to decide again. Owner: poll thread."""

    def __init__(self, parts: EngineParts):
        self._parts = parts
        self._doubt_until = float("-inf")
        """Until when another member may own the partitions: nothing starts or is committed."""

    def decide(self, now: float, wall_ms: float, observer: Observer | None) -> Decisions:
        """Decide what to do now, see ``Engine.on_tick``; the observer gets news of the breaker."""
        parts = self._parts
        parts.scheduling.begin_tick(now)
        parts.turns.begin_tick(now, wall_ms, parts.failed_records.leaving)
        parts.pauses.ask_rules(now)
        decisions = Decisions(
            failed=parts.outcomes.take_news(), passed_over=parts.intake.take_passed_over()
        )
        for slice_ in parts.dispatcher.stuck(now):
            parts.counters.taken_back += parts.completion.take_back(slice_, now)
        decisions.stalled = parts.stalls.due(parts.partitions, now)
        decisions.returned = parts.stalls.take_returned()
        parts.failed_records.release_due(now)
        parts.output.resend_due(now)
        parts.housekeeping.let_in(now)
        self._follow_breaker(decisions, now, observer)
        in_doubt = now < self._doubt_until
        if not in_doubt:
            self._start(decisions, now)
        decisions.stop = self._stop
        decisions.away = parts.lane_ownership.owners_away(now)
        parts.housekeeping.run(decisions, now, may_commit=not in_doubt)
        return decisions

    def _follow_breaker(self, decisions: Decisions, now: float, observer: Observer | None) -> None:
        parts = self._parts
        outlook = parts.start_gate.outlook() if parts.breaker.counts_calls else None
        decisions.breaker = parts.breaker.advance(now, outlook)
        for news in decisions.breaker:
            parts.start_gate.obey(news, now)
            if observer is not None:
                observer.breaker(news, now)

    def _start(self, decisions: Decisions, now: float) -> None:
        """Dispatch and publish, within the limits of the guarantee."""
        parts = self._parts
        parts.lane_ownership.send_home(now)
        parts.resting.advance(now)
        parts.start_gate.decide(decisions, now)
        decisions.dispatch = parts.guarantee.starting(decisions.dispatch)
        if parts.guarantee.is_due:
            parts.housekeeping.is_due_at(now)
        if parts.suspects.cases and parts.suspects.awaits_commit:
            parts.housekeeping.is_due_at(now)
        decisions.limit = parts.slot_limit.adjust(now)

    @property
    def _stop(self) -> WorkerStoppedError | None:
        parts = self._parts
        if why := parts.retry_queue.stop or parts.copy_queue.stop:
            return WorkerStoppedError(why)
        return None if parts.stalls.stop is None else CallsHangError(parts.stalls.stop)

    def wait_s(self, now: float, longest_s: float) -> float:
        """Return how long the next tick may wait for an event, at most ``longest_s``."""
        parts = self._parts
        if parts.turns.was_full:
            return 0.0
        if parts.guarantee.awaits_ack:
            longest_s = min(longest_s, ACK_S)
        if parts.dispatcher.held_back:
            longest_s = min(longest_s, COMPANY_S)
        elif parts.work.waiting_for_results or parts.suspects.cases or parts.resting.awaits_commit:
            longest_s = min(longest_s, SLICE_TARGET_S)
        longest_s = min(longest_s, max(0.0, parts.breaker.next_look(now) - now))
        due = parts.scheduling.next_due(now, may_start=parts.breaker.limit != 0)
        longest_s = min(longest_s, max(0.0, due - now))
        spent = parts.failed_records.spent.first
        if spent:
            settled_at = spent_call(spent).settled_at(parts.breaker.state)
            longest_s = min(longest_s, settled_at - now) if settled_at > now else longest_s
        due = min(parts.housekeeping.next_due, parts.guarantee.next_due(now))
        for another in (parts.failed_records.next_due(), parts.output.next_due()):
            if another is not None:
                due = min(due, another)
        return max(0.0, min(longest_s, due - now))

    def doubt(self, doubt_s: float, now: float) -> list[Outlived]:
        """Start and commit nothing for a while after a freeze, see ``Engine.on_stood_still``."""
        parts = self._parts
        self._doubt_until = now + doubt_s
        parts.stalls.stood_still(now)
        parts.dispatcher.release_all_gathered()
        suspects: list[Outlived] = []
        for slice_ in list(parts.dispatcher.out):
            partition = slice_.partition
            if not partition.accepts_results:
                continue
            begun = slice_.begun()
            suspects.extend(
                Outlived(partition.name, message.offset(), message.key())
                for message in (begun if slice_.is_batch else begun[-SUSPECTS:])
            )
            if partition.is_assigned:
                parts.completion.take_back(slice_, now)
        return suspects
