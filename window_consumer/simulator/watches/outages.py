"""Watches outages: how many new records leave while every call fails."""

from __future__ import annotations

from window_consumer.engine.guards.breaker.departures import MOST
from window_consumer.simulator.history import SimulationHistory
from window_consumer.simulator.log_history import Member, SimulatedCall, Tenure
from window_consumer.testing.events import Result


class Outages:
    """Counts the new records of each member that leave between two successful calls.

    New records come from a source or were redriven. Without new ones, copies in retry levels move
    to the next level, whatever their error.

    The Engine receives results by the slice, so calls from before an outage may be reported during
    it, one slice per slot. Records that already failed while others succeeded may leave, as may
    those that always fail when nothing else is left to call.
    """

    def __init__(self, history: SimulationHistory):
        self._history = history
        self._runs: dict[Member, int] = {}
        """A member's number of successful calls; it numbers the run of failures since the last
        one."""
        self._began: dict[tuple[Tenure, int], int] = {}
        """The run in which a record's first call failed."""
        self._spent: dict[tuple[Tenure, int], int] = {}
        """The run in which a record's attempts were spent."""
        self._left: dict[tuple[Member, int], set[tuple[Tenure, int]]] = {}

    def ended(self, call: SimulatedCall, result: Result) -> None:
        """Record the end of a call."""
        member, record = call.tenure.member, (call.tenure, call.offset)
        run = self._runs.get(member, 0)
        if result in ("done", "skipped"):
            self._runs[member] = run + 1
            return
        self._began.setdefault(record, run)
        if result == "spent":
            self._spent[record] = run

    def left(self, tenure: Tenure, offset: int) -> None:
        """Check a copy of a record whose retries are exhausted."""
        rules = self._history.plan.engine
        run = self._spent.get((tenure, offset))
        is_copy = tenure.partition.retry_level.level is not None
        if run is None or is_copy or not rules.breaker.enabled:
            return
        if self._began[tenure, offset] != run:
            return  # others succeeded while it failed: the record is at fault
        left = self._left.setdefault((tenure.member, run), set())
        left.add((tenure, offset))
        if len(left) > MOST:
            self._history.violate(
                f"{len(left)} records left {tenure.member} while no call returned, the limit is"
                f" {MOST}"
            )
