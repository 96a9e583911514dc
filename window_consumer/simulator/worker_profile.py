"""Schedules with the rules of a user's worker: its order, its windows, its ladder.

Everything else is random: records, keys, failures, rebalances, crashes, refused commits. Half of
the schedules shrink the windows to a few records and bytes: a window of 16,000 records never fills
up, so the bugs of full windows would stay hidden.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from random import Random
from typing import Any

import attrs
from attrs import frozen

from window_consumer.engine.commits.start_offset import OnNoOffset
from window_consumer.engine.decisions import EngineRules
from window_consumer.model.produce import results_of
from window_consumer.model.record import Call, Record
from window_consumer.runtime.calls.batch_calls import failed_of
from window_consumer.runtime.partitions.offset_reset import OnOutOfRange
from window_consumer.simulator.fault_plan import FaultPlan
from window_consumer.simulator.log_history import SimulatedCall
from window_consumer.simulator.schedule import SchedulePlan, fitted
from window_consumer.simulator.schedule_builder import DEATHS, draw
from window_consumer.simulator.simulator import ROUNDS

MAX_SLOTS = 16
"""The most slots: more make no difference in a schedule of a few hundred steps."""

_LONGEST_WAITS = 10
"""How many of the longest waits, in a row, fit into the end of a schedule."""


@frozen
class Likeness:
    """The parts of a worker's configuration that a schedule uses."""

    engine: EngineRules
    revoke_timeout_s: float
    stop_timeout_s: float
    on_no_offset: OnNoOffset = "earliest"
    on_out_of_range: OnOutOfRange = "earliest"
    values: tuple[bytes, ...] = ()
    """The records' values if handlers are called."""
    has_children: bool = False
    """Its slots are processes, which may die."""

    def draw(self, rng: Random) -> SchedulePlan:
        """Draw a schedule for the worker."""
        drawn = draw(rng)
        engine = _with_slots(self.engine, MAX_SLOTS)
        if rng.random() < 0.5:
            engine = _small(engine, drawn.engine)
        waits_s = _waits_s(engine)
        deaths = DEATHS[rng.randrange(len(DEATHS))] if self.has_children else None
        handlers = drawn.handlers
        if engine.retry.when_spent == "stop":
            handlers = attrs.evolve(handlers, deadly=0.0)  # a person would have to fix them
        plan = attrs.evolve(
            drawn,
            engine=engine,
            loop=attrs.evolve(
                drawn.loop,
                revoke_timeout_s=self.revoke_timeout_s,
                stop_timeout_s=self.stop_timeout_s,
            ),
            # A worker that a rule stops at once would test nothing.
            on_no_offset=drawn.on_no_offset if self.on_no_offset == "fail" else self.on_no_offset,
            on_out_of_range=drawn.on_out_of_range
            if self.on_out_of_range == "fail"
            else self.on_out_of_range,
            waits_s=(*drawn.waits_s, *waits_s),
            calm_step_s=max(drawn.calm_step_s, _LONGEST_WAITS * max(waits_s) / ROUNDS),
            values=self.values,
            handlers=handlers,
            deaths=deaths,
        )
        return fitted(plan)


def _waits_s(engine: EngineRules) -> tuple[float, ...]:
    """Return how long records may wait under each rule."""
    delays = (each.delay_s for each in engine.retry.levels)
    cool_down = (engine.breaker.cool_down_s,) if engine.breaker.enabled else ()
    company = () if engine.batch is None else (engine.batch.max_wait_s,)
    return (engine.retry.backoff_max_s, engine.commit_interval_s, *delays, *cool_down, *company)


def _small(engine: EngineRules, drawn: EngineRules) -> EngineRules:
    return attrs.evolve(
        _with_slots(engine, drawn.slots),
        window_cells=min(engine.window_cells, drawn.window_cells),
        cell_records=min(engine.cell_records, drawn.cell_records),
        window_bytes=min(engine.window_bytes, drawn.window_bytes),
        batch_records=min(engine.batch_records, drawn.batch_records),
    )


def _with_slots(engine: EngineRules, most: int) -> EngineRules:
    """Return rules with at most ``most`` slots, the lower end of ``auto: 4..200`` included."""
    slots = min(engine.slots, most)
    limit = engine.limit
    if limit is not None:
        limit = attrs.evolve(limit, lower=min(limit.lower, slots))
    return attrs.evolve(engine, slots=slots, limit=limit)


class HandlerFaultPlan(FaultPlan):
    """A fault plan in which a real handler decides how calls end. Owner: one thread."""

    def __init__(self, plan: SchedulePlan, rng: Random, state: Any):
        super().__init__(plan, rng)
        self.handler: Callable[[Record], object] = lambda _record: None
        """The handler to call; set once it is made with this plan's clock."""
        self.batch_handler: Callable[[list[Record]], object] = lambda _records: None
        """The same for batch handlers."""
        self._state = state
        self._results = 0
        """How many records the last call returned to produce."""

    def time_ms(self) -> int:
        """Return the simulated time in milliseconds since 1970."""
        return self.wall_ms()

    def ending(self, call: SimulatedCall) -> Exception | None:
        """Call the handler; return what it raises; None if it returns.

        In the calm at the end, calls succeed without it.
        """
        self._results = 0
        if self.calm:
            return None
        record = Record.of(call.record.message, Call(call.attempt, self._state))
        try:
            self._results = len(results_of(self.handler(record)))
        except Exception as error:
            return error
        return None

    def endings(self, calls: Sequence[SimulatedCall]) -> list[Exception | None]:
        """Call the batch handler; return each record's error; None for records that are done.

        A record that was not handled because an earlier one failed gets that one's error.
        """
        self._results = 0
        if self.calm:
            return [None] * len(calls)
        about = Call(calls[0].attempt, self._state)
        records = [Record.of(call.record.message, about) for call in calls]
        try:
            self.batch_handler(records)
        except Exception as error:
            reasons = {id(record): reason for record, reason in failed_of(error, records)}
            first = next((each for each in reasons.values() if isinstance(each, Exception)), error)
            return [
                None if reason is None else reason if isinstance(reason, Exception) else first
                for reason in map(reasons.get, map(id, records))
            ]
        return [None] * len(calls)

    def returns(self, call: SimulatedCall) -> tuple[int, str]:  # noqa: ARG002 - as declared
        """Return how many results the handler has returned; their topics are not simulated."""
        return self._results, ""
