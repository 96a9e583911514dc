"""Watches which records are called and when: with the next attempt, when due, never when over."""

from __future__ import annotations

from window_consumer.engine.commits.commit_metadata import CommitNote, decode
from window_consumer.engine.partition_state import HoldReason
from window_consumer.engine.retry.retry_topics import MAX_SKEW_S
from window_consumer.model.errors import RetryLater
from window_consumer.simulator.history import SimulationHistory
from window_consumer.simulator.log_history import SimulatedCall, Tenure, TurnKind, due_ms, kind_of
from window_consumer.simulator.schedule import GROUP
from window_consumer.simulator.watches.reassignment import ReassignmentWatch

TOLERANCE_S = 1e-9


class StartWatch:
    """Checks records that slots claim, and calls that begin. Owner: one thread."""

    def __init__(self, history: SimulationHistory, kept: ReassignmentWatch):
        self._history = history
        self._kept = kept

    def claimed(self, tenure: Tenure, offset: int, attempt: int) -> None:
        """Check that a claimed record's partition is not revoked and its backoff is over.

        When its call begins, the Engine may have released the partition and forgotten the record.
        """
        history, place = self._history, f"{tenure.name}@{offset}"
        is_held = tenure.partition.is_assigned or tenure.partition.starts_while_revoked
        if not tenure.current or not is_held:
            history.violate(f"{tenure.member} starts {place} of a partition that it is releasing")
        if history.now() < self._not_before(tenure, offset, attempt) - TOLERANCE_S:
            history.violate(f"{place} is called again before its backoff is over")

    def begins(self, call: SimulatedCall) -> None:
        """Check a call that begins."""
        tenure, offset, violate = call.tenure, call.offset, self._history.violate
        place = f"{tenure.name}@{offset}"
        if offset not in tenure.delivered:
            violate(f"{place} is called but was never delivered to {tenure.member}")
        if offset in tenure.running:
            violate(f"{place} is called while its earlier call runs on {tenure.member}")
        if offset in tenure.dropped and self._history.plan.engine.breaker.enabled:
            tenure.dropped.discard(offset)
            tenure.final.discard(offset)
        if offset in tenure.final:
            violate(f"{place} is called again on {tenure.member} after its final outcome")
        if offset in tenure.durable:
            violate(f"{place} had finished and was committed, and runs again")
        self._kept.starts(call)
        if not (self._history.plan.repeats or call.at_turn):
            self._check_only_call(call)
        before = tenure.attempts.get(offset, 0)
        if call.attempt != before + 1:
            violate(f"{place} is called as attempt {call.attempt} after {before}")
        if HoldReason.CRASH_SUSPECTS in tenure.partition.holds and not call.at_turn:
            self._check_name(call)
        if not call.at_turn:
            self._check_use(call)
        self._check_turn(call)
        self._check_level(call)

    def _check_only_call(self, call: SimulatedCall) -> None:
        """Check that a record is committed before its call and was not called before."""
        history, ledger = self._history, call.record.ledger
        place = f"{call.tenure.name}@{call.offset}"
        history.catch_up()
        if history.broker.topics.log(call.tenure.name) is not ledger.log:
            return
        if call.offset not in ledger.durable and not call.tenure.restarted:
            history.violate(f"{place} is called before it is committed")
        if call.record.called and not call.tenure.restarted:
            history.violate(f"{place} is called a second time")
        call.record.called = True

    def _check_level(self, call: SimulatedCall) -> None:
        """Check that a copy is due, as its header says, within the clocks' tolerance."""
        level = self._history.retry_level(call.tenure.name).level
        if level is None:
            return
        record = call.record
        latest = record.written_ms + (level.delay_s + MAX_SKEW_S) * 1000
        if self._history.wall_ms() < min(record.hop.not_before or 0, latest) - 1:
            self._history.violate(f"{call.tenure.name}@{call.offset} is called before it is due")

    def _check_turn(self, call: SimulatedCall) -> None:
        """Check that a rule about its turn lets a record be called now."""
        share = self._history.plan.handlers.turns
        kind = kind_of(call.record.hop, share) if share else None
        place = f"{call.tenure.name}@{call.offset}"
        if kind is TurnKind.HOLD:
            is_early = self._history.wall_ms() < due_ms(call.record) - 1
            if is_early and not self._history.plan.parks:
                self._history.violate(f"{place} is called before its time")
        elif kind is not None and not call.at_turn:
            self._history.violate(f"{place} is called although it ends at its turn")

    def _check_name(self, call: SimulatedCall) -> None:
        """Check that a record started alone is named in a commit."""
        history, tenure = self._history, call.tenure
        if not self._has_commit(tenure):
            return
        note = self._committed(tenure)
        place = f"{tenure.name}@{call.offset}"
        if note is None or note.suspect != call.offset:
            history.violate(f"{place} is started alone before a commit names it")
        # An abandoned call may run at the same time: a thread cannot be stopped.
        others = tenure.running - tenure.abandoned
        if others:
            history.violate(f"{place} is not alone: {others} run")

    def _check_use(self, call: SimulatedCall) -> None:
        """Check that the commit does not say that nothing of the partition is in progress."""
        tenure = call.tenure
        knows = tenure.current and self._has_commit(tenure)
        note = self._committed(tenure) if knows else None
        if knows and (note is None or note.clean):
            self._history.violate(
                f"{call.tenure.name}@{call.offset} is started while its commit says that all rests"
            )

    def _has_commit(self, tenure: Tenure) -> bool:
        """Return whether the committed entry belongs to an assignment."""
        history = self._history
        if history.broker.topics.log(tenure.name) is not tenure.ledger.log:
            return False  # the topic was recreated and the commits of the old one are gone
        # If it was evicted, it may not know it yet, and a new owner may have committed since.
        return history.is_member(tenure.member)

    def _committed(self, tenure: Tenure) -> CommitNote | None:
        return decode(self._history.broker.group(GROUP).committed(tenure.name).metadata)

    def _not_before(self, tenure: Tenure, offset: int, attempt: int) -> float:
        """Return the earliest time at which a record may be called again after its last failure.

        Calls that the breaker did not charge do not make the backoff longer: before any charged
        one it is half of the shortest. A record whose last attempt was charged is called at once
        when the breaker pardons it.
        """
        if offset not in tenure.last_failures:
            return 0.0
        rules = self._history.plan.engine
        failed_at, error, spared_before = tenure.last_failures[offset]
        if isinstance(error, RetryLater):
            return failed_at + min(error.after_s, rules.retry.backoff_max_s)
        spared = tenure.spared(offset)
        charged = attempt - 1 - spared
        is_spent = charged >= rules.retry.allowed(tenure.partition.retry_level.level)
        if rules.breaker.enabled and is_spent and spared == spared_before:
            return failed_at
        ceiling = min(rules.retry.backoff_min_s * 2.0 ** (charged - 1), rules.retry.backoff_max_s)
        return failed_at + 0.75 * ceiling
