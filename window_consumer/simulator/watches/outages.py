"""Watches outages: how many new records leave while every call fails."""

from __future__ import annotations

from window_consumer.simulator.log_history import (
    Chronicle,
    Member,
    SimulatedCall,
    Tenure,
)
from window_consumer.testing.events import Result


class Outages:
    """Counts the new records of each member that leave between two calls that return.

    New ones come from a source, or were put back. Where there are none, copies in retry levels
    climb on whatever they fail of.

    The Engine hears of calls when their slice is over, so that calls of a moment before an outage
    may be heard in its midst: once for each slot. Records that failed already when others returned
    may leave: so may those that always fail when nothing else is left to call.
    """

    def __init__(self, history: Chronicle):
        self._history = history
        self._runs: dict[Member, int] = {}
        """How many calls of a member have returned: the number of the run of failures since."""
        self._began: dict[tuple[Tenure, int], int] = {}
        """The run in which a record's first call failed."""
        self._spent: dict[tuple[Tenure, int], int] = {}
        """The run in which a record's attempts were spent."""
        self._left: dict[tuple[Member, int], set[tuple[Tenure, int]]] = {}

    def ended(self, call: SimulatedCall, result: Result) -> None:
        """A call is over."""
        member, record = call.tenure.member, (call.tenure, call.offset)
        run = self._runs.get(member, 0)
        if result in ("done", "skipped"):
            self._runs[member] = run + 1
            return
        self._began.setdefault(record, run)
        if result == "spent":
            self._spent[record] = run

    def left(self, tenure: Tenure, offset: int) -> None:
        """A copy of a record is written because its retries are exhausted."""
        rules = self._history.plan.engine
        run = self._spent.get((tenure, offset))
        is_copy = tenure.partition.retry_level.level is not None
        if run is None or is_copy or not rules.breaker.enabled:
            return
        if self._began[tenure, offset] != run:
            return  # others returned while it failed: it is what is wrong
        left = self._left.setdefault((tenure.member, run), set())
        left.add((tenure, offset))
        allowed = rules.breaker.min_calls * (rules.slots + 1)
        if len(left) > allowed:
            self._history.violate(
                f"{len(left)} records left {tenure.member} while no call returned, allowed are"
                f" {allowed}"
            )
