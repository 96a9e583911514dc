"""The simulator: a thousand hours of faults in a minute, each schedule from one number.

A seed decides everything: the configuration, the records, the order of turns, the faults. The
members run the real poll loop and the real Engine on a fake broker, with a clock that only the
simulation advances. Promises are checked throughout. At the end the faults stop, and everything
must drain.

    python -m window_consumer.simulator.simulator --seed 17      # prints what happens
    python -m window_consumer.simulator.simulator --seeds 0..2000
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Iterable, Sequence
from random import Random

from window_consumer.audit.consumer import ConsumerAudit
from window_consumer.simulator.fault_plan import FaultPlan
from window_consumer.simulator.schedule import GROUP, SchedulePlan
from window_consumer.simulator.schedule_builder import draw
from window_consumer.simulator.simulation import Simulation
from window_consumer.simulator.system_under_test import SystemUnderTest
from window_consumer.testing.events import LogEnd, OffsetCommitted, Produced
from window_consumer.testing.fakes.log import FakeLog
from window_consumer.testing.guarantees import (
    CommittedReachesEnd,
    NothingLost,
    OneAtATimePerKey,
    check,
)

ROUNDS = 300
"""Rounds without a fault, of 0.3 s each, within which everything must finish."""

LAST_LINES = 30
"""How many lines of history a violation prints."""


FRAMEWORK = SystemUnderTest(make_audit=ConsumerAudit)

Draw = Callable[[Random], SchedulePlan]
MakeWeather = Callable[[SchedulePlan, Random], FaultPlan]


class ViolationError(AssertionError):
    """A promise was broken; the message says which one, in which schedule, after which events."""

    def __init__(self, seed: int, step: int, violations: Sequence[str], trace: Sequence[str]):
        self.seed = seed
        self.violations = list(violations)
        self.trace = list(trace)
        first = next(
            (n for n, line in enumerate(trace) if line.endswith(violations[0])), len(trace)
        )
        led = trace[max(first + 1 - LAST_LINES, 0) : first + 1]
        lines = (f"seed {seed}, step {step}: {violations[0]}", *led)
        super().__init__("\n    ".join(lines))


class ScheduleRun:
    """One schedule from its beginning to its end. Owner: one thread."""

    def __init__(
        self,
        seed: int,
        subject: SystemUnderTest,
        *,
        tell: bool,
        draw: Draw = draw,
        make_fault_plan: MakeWeather = FaultPlan,
    ):
        rng = Random(seed)
        self.seed = seed
        self.steps_taken = 0
        self.plan = draw(rng)
        self.rng = rng
        self.simulation = Simulation(self.plan, rng, subject, make_fault_plan(self.plan, rng))
        self.history = self.simulation.history
        if tell:
            self.history.trace = []

    def go(self, steps: int | None) -> None:
        """Run the whole schedule; ViolationError at the first broken promise."""
        steps = self.rng.randint(60, 250) if steps is None else steps
        for _ in range(self.rng.randint(0, self.plan.members)):
            self.simulation.start()
        for _ in range(steps):
            self.simulation.step()
            self._judge()
        self.simulation.calm_down()
        self._drain()
        self.simulation.redrives.finish()
        self.simulation.replays.finish()
        self._judge()
        for log in self._logs(self.plan.sources):
            for key in self.plan.keys[:3]:
                self.simulation.logs.produce(log, key)
        self._drain()
        for member in list(self.simulation.members):
            self.simulation.stop(member)
        self._check_the_end()

    def _judge(self) -> None:
        self.steps_taken += 1
        if self.history.violations:
            trace = self.history.trace or ()
            raise ViolationError(self.seed, self.steps_taken, self.history.violations, trace)

    def _drain(self) -> None:
        simulation = self.simulation
        for round_ in range(ROUNDS):
            if not simulation.members or round_ % 10 == 0:
                simulation.start()
                simulation.deliver_news()
            simulation.settle()
            self._judge()
            if self._is_idle():
                return
        self.history.violate(f"not finished after {ROUNDS} rounds without a fault: {self._rest()}")
        self._judge()

    @property
    def _read(self) -> list[str]:
        """The topics that must be read to their ends."""
        return [*self.plan.sources, *self.simulation.scene.ladder.retry_levels]

    def _logs(self, names: Iterable[str]) -> list[FakeLog]:
        topics = self.simulation.broker.topics.by_name
        return [log for name in names for log in topics[name].logs]

    def _is_idle(self) -> bool:
        return not self._rest()

    def _rest(self) -> list[str]:
        """Return the unfinished work, in words."""
        group = self.simulation.broker.group(GROUP)
        rest = []
        for log in self._logs(self._read):
            committed = group.committed(log.name).next_offset
            if committed is None and not log.end and log.name.topic not in self.plan.sources:
                continue  # it may never have been read: its level came and went
            if committed != log.end:
                rest.append(f"{log.name} ends at {log.end}, committed is {committed}")
        for member in self.simulation.members:
            engine = member.engine
            if not (
                member.slots.idle and member.completions.empty() and not member.sink.unanswered
            ):
                rest.append(f"{member} has calls, results or copies on their way")
            used, unfinished = engine.budget.used, engine.work.unfinished()
            if used or unfinished:
                rest.append(f"{member} has {unfinished} open records, {used} bytes")
        return rest

    def _check_the_end(self) -> None:
        history = self.history
        for ledger in history.ledgers.values():
            if history.broker.topics.log(ledger.log.name) is not ledger.log:
                continue
            for offset, record in ledger.records.items():
                if self.plan.repeats and not record.handled and not record.excused:
                    history.violate(f"{ledger.log.name}@{offset} is lost")
        self.simulation.scene.copies.check_dead_letters()
        self.simulation.scene.results.check_results()
        if self.plan.repeats:  # else a kill loses counts of records committed before their calls
            self.simulation.scene.audit.check()
        self.simulation.scene.calls.rate.judge()
        for text in self._broken_guarantees():
            history.violate(text)
        self._judge()

    def _broken_guarantees(self) -> list[str]:
        """Return the findings of the guarantees, which check this history by their own rules."""
        history = self.history
        group = history.broker.group(GROUP)
        wanted = {
            (history.topic_of(ledger), ledger.log.name.partition, offset)
            for ledger in history.ledgers.values()
            if history.broker.topics.log(ledger.log.name) is ledger.log
            for offset, record in ledger.records.items()
            if not record.excused
        }
        events = [
            event
            for event in history.events
            if not isinstance(event, Produced)
            or (event.topic, event.partition, event.offset) in wanted
        ]
        for log in self._logs(self._read):
            place = (*log.name, log.end)
            committed = group.committed(log.name).next_offset or 0
            events += [LogEnd(*place), OffsetCommitted(*log.name, committed, history.now())]
        lost = [NothingLost()] if self.plan.repeats else []
        return check(events, *lost, OneAtATimePerKey(), CommittedReachesEnd())


def simulate(
    seed: int,
    *,
    steps: int | None = None,
    subject: SystemUnderTest = FRAMEWORK,
    tell: bool = False,
    draw: Draw = draw,
    make_fault_plan: MakeWeather = FaultPlan,
) -> list[str]:
    """Run the schedule of a seed; raise ViolationError with its history at a broken promise.

    ``steps`` replaces the drawn length. With ``tell`` it returns what happened, line by line.
    ``draw`` makes a schedule from random numbers, ``make_fault_plan`` decides how its calls end,
    ``subject`` is the system under test.
    """
    run = ScheduleRun(seed, subject, tell=tell, draw=draw, make_fault_plan=make_fault_plan)
    try:
        run.go(steps)
    except ViolationError:
        if tell:
            raise
        # Repeat it with a trace: tracing every run would cost more than everything else.
        again = ScheduleRun(seed, subject, tell=True, draw=draw, make_fault_plan=make_fault_plan)
        again.go(steps)
        raise
    return run.history.trace or []


def main(arguments: Sequence[str] | None = None) -> int:
    """Run schedules from the command line; return 1 if a promise was broken."""
    parser = argparse.ArgumentParser(prog="python -m window_consumer.simulator.simulator")
    which = parser.add_mutually_exclusive_group(required=True)
    which.add_argument("--seed", type=int, help="run one schedule and print what happens")
    which.add_argument("--seeds", type=_range, metavar="A..B", help="run the schedules A to B - 1")
    parser.add_argument("--steps", type=int, help="end the faults after this many steps")
    options = parser.parse_args(arguments)
    write = sys.stdout.write
    if options.seed is not None:
        run = ScheduleRun(options.seed, FRAMEWORK, tell=True)
        try:
            run.go(options.steps)
        except ViolationError as violation:
            write(
                "\n".join((*violation.trace, f"seed {options.seed}: {violation.violations[0]}\n"))
            )
            return 1
        write("\n".join((*(run.history.trace or ()), f"seed {options.seed}: every promise kept\n")))
        return 0
    broken = 0
    for seed in options.seeds:
        try:
            simulate(seed, steps=options.steps)
        except ViolationError as violation:
            broken += 1
            write(f"seed {seed}: {violation.violations[0]}\n")
    write(f"{len(options.seeds)} schedules, {broken} with a broken promise\n")
    return 1 if broken else 0


def _range(text: str) -> range:
    first, _, last = text.partition("..")
    return range(int(first), int(last))


if __name__ == "__main__":
    sys.exit(main())
