"""Watches schedules in which the only fault is records that always fail."""

from __future__ import annotations

from collections import deque

from window_consumer.engine.guards.breaker.departures import HOLD_S
from window_consumer.simulator.history import SimulationHistory
from window_consumer.simulator.log_history import Member, SimulatedCall, Tenure
from window_consumer.simulator.schedule import QUIET
from window_consumer.testing.events import Result

DEADLINE_S = HOLD_S + 1.0
"""How late a promised event may come."""

DEADLINE_TURNS = 10
"""How many turns of the poll loop it may also take: a simulated step may be long."""


class PoisonWatch:
    """Checks that bad records hold up no others and leave in time.

    This does not apply while most records fail on their first call: that is an outage.
    """

    def __init__(self, history: SimulationHistory):
        self._history = history
        plan = history.plan
        self._watches = plan.engine.breaker.enabled and QUIET.issuperset(plan.actions)
        self._first_calls: dict[Member, deque[bool]] = {}
        """Whether the latest first calls of each member failed."""
        self._excused_until: dict[Member, float] = {}
        self._turns: dict[Member, int] = {}
        self._spent: dict[tuple[Tenure, int], tuple[float, int]] = {}
        """Records that must leave, since when and since which turn."""
        self._waiting: dict[Member, tuple[float, int]] = {}
        """Since when new records have waited while slots were idle."""

    def ended(self, call: SimulatedCall, result: Result) -> None:
        """Record the end of a call."""
        if not self._watches:
            return
        tenure = call.tenure
        member, now = tenure.member, self._history.now()
        if call.attempt == 1 and tenure.partition.retry_level.level is None:
            rules = self._history.plan.engine.breaker
            last = self._first_calls.setdefault(member, deque(maxlen=rules.min_calls))
            last.append(result not in ("done", "skipped"))
            if sum(last) > rules.failures * rules.min_calls:
                self._excused_until[member] = now + rules.cool_down_s + DEADLINE_S
        if result == "spent":
            self._spent[tenure, call.offset] = (now, self._turns.get(member, 0))

    def left(self, tenure: Tenure, offset: int) -> None:
        """Record a copy of a record whose retries are exhausted."""
        self._spent.pop((tenure, offset), None)

    def on_turn(self, member: Member) -> None:
        """Check a member after a turn."""
        if not self._watches:
            return
        now = self._history.now()
        self._turns[member] = turn = self._turns.get(member, 0) + 1
        if not self._is_waiting(member):
            self._waiting.pop(member, None)
        elif self._is_late(member, *self._waiting.setdefault(member, (now, turn))):
            self._history.violate(f"{member} starts no new record although slots are idle")
        for (tenure, offset), since in list(self._spent.items()):
            if not tenure.current:
                del self._spent[tenure, offset]
            elif tenure.member is member and self._is_late(member, *since):
                self._history.violate(f"{tenure.name}@{offset} always fails but does not leave")

    @staticmethod
    def _is_waiting(member: Member) -> bool:
        engine, fair = member.engine, member.engine.rules.fair
        if fair is not None and fair.leaves_slots:
            return False
        return bool(engine.dispatcher.idle_slots) and any(
            partition.is_assigned and not partition.is_suspended and partition.ordering.startable
            for partition in engine.partitions.values()
            if partition.retry_level.level is None
        )

    def _is_late(self, member: Member, since: float, turn: int) -> bool:
        now = self._history.now()
        return (
            now - since > DEADLINE_S
            and self._turns[member] - turn > DEADLINE_TURNS
            and now > self._excused_until.get(member, 0.0)
        )
