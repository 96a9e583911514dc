"""``window-consumer simulate``: checks every promise of a configuration on random schedules."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from functools import partial
from pathlib import Path
from random import Random
from time import perf_counter
from typing import Any

import click
from attrs import define, field, frozen

from window_consumer.cli import options
from window_consumer.cli.output import (
    FAILED,
    INTERRUPTED,
    OK,
    application_output,
    exits,
    print_json,
)
from window_consumer.cli.signals import Signals
from window_consumer.model.errors import UsageError
from window_consumer.plan.app_plan import AppPlan, PlannedWorker
from window_consumer.plan.calls import copy_test
from window_consumer.plan.definition import AppDefinition
from window_consumer.plan.loading import load_app
from window_consumer.runtime.calls.layer import CallTools
from window_consumer.runtime.pools.inline_event_loop import InlineEventLoop
from window_consumer.simulator.fault_plan import FaultPlan
from window_consumer.simulator.schedule import SchedulePlan as Schedule
from window_consumer.simulator.simulator import FRAMEWORK, MakeWeather, ViolationError, simulate
from window_consumer.simulator.system_under_test import SystemUnderTest
from window_consumer.simulator.worker_profile import HandlerFaultPlan, Likeness

SEEDS = 1000

_MOST_PRINTED = 5
"""How many broken schedules of a worker are printed; further ones are only counted."""


def _seeds(text: str) -> range:
    """Read how many schedules, or which ones: ``1000`` or ``200..300``."""
    first, dots, last = text.partition("..")
    try:
        seeds = range(int(first), int(last)) if dots else range(int(first))
    except ValueError:
        raise ValueError(f"{text!r} is neither a number nor a range such as 200..300") from None
    if not seeds or seeds.start < 0:
        raise ValueError(f"{text!r} has no seed: seeds start at 0")
    return seeds


@frozen
class SimulatedWorker:
    """The part of each worker's schedules to simulate."""

    seeds: range
    tell: bool
    steps: int | None
    values: tuple[bytes, ...]
    calling: bool
    replay: str
    """The command to repeat, without worker and seed."""
    subject: SystemUnderTest = FRAMEWORK
    stop_asked: Callable[[], bool] = lambda: False
    """Asked between schedules instead of raising an exception, which Python may ignore."""
    as_json: bool = False
    """Print one JSON object instead of the results; the rest goes to stderr."""


@click.command("simulate")
@options.application
@options.config
@options.only
@options.overrides
@click.option(
    "--seeds",
    type=options.TextParam("seeds", _seeds),
    default=range(SEEDS),
    metavar="N|A..B",
    help=f"How many schedules, or which ones. [default: {SEEDS}]",
)
@click.option("--seed", type=click.IntRange(0), help="Only this schedule, printed step by step.")
@click.option("--steps", type=click.IntRange(1), help="End the faults after this many steps.")
@click.option(
    "--call-handlers",
    is_flag=True,
    help="Call the handlers, middleware and lifespan included, instead of inventing outcomes.",
)
@click.option(
    "--values",
    type=click.Path(path_type=Path),
    help="A file with records' values, one per line, for --call-handlers. [default: {}]",
)
@options.json_option
@exits({FAILED: "a promise was broken"})
def simulate_command(**given: Any) -> int:
    """Run a configuration through random schedules and check every promise.

    Each seed is a schedule of records, failures, slow calls, rebalances, refused commits, lost
    copies and crashes, on a broker in memory, with the order, the windows and the retry rules of
    the configuration. Needs no Kafka.
    """
    if given["values"] is not None and not given["call_handlers"]:
        raise UsageError("--values has no effect without calls: add --call-handlers")
    with application_output():
        app = load_app(given["application"])
    plan = app.plan(given["config"], only=given["only"], overrides=given["overrides"])
    seed = given["seed"]
    task = SimulatedWorker(
        seeds=given["seeds"] if seed is None else range(seed, seed + 1),
        tell=seed is not None,
        steps=given["steps"],
        values=_values(given["values"]) if given["call_handlers"] else (),
        calling=given["call_handlers"],
        replay=_replay(given),
        as_json=given["as_json"],
        stop_asked=Signals.install().stop.is_set,
    )
    if task.tell and len(plan.workers) > 1:
        names = ", ".join(worker.name for worker in plan.workers)
        raise UsageError(f"--seed prints one worker's schedule: choose one with --only ({names})")
    return run(app, plan, task)


def run(app: AppDefinition, plan: AppPlan, task: SimulatedWorker) -> int:
    """Simulate the workers of a plan; return the exit code."""
    tallies: dict[str, _Tally] = {}
    stopped = False
    with (
        application_output(),
        InlineEventLoop() as loop,
        app.resources(loop.run) if task.calling else nullcontext() as state,
    ):
        for worker in plan.workers:
            if worker.config.is_broadcast:
                text = f"{worker.name}: not simulated: delivery is broadcast, without a group"
                click.echo(text, err=task.as_json)
                continue
            make_fault_plan: MakeWeather = FaultPlan
            if task.calling:
                make_fault_plan = partial(_fault_plan, app, plan, worker, state, loop)
            tallies[worker.name] = _simulate_worker(plan, worker, task, make_fault_plan)
            stopped = task.stop_asked()
            if stopped:
                break
    if task.as_json:
        print_json({"workers": {name: each.as_json() for name, each in tallies.items()}})
    if stopped:
        return INTERRUPTED
    return FAILED if any(each.broken for each in tallies.values()) else OK


def _simulate_worker(
    plan: AppPlan, worker: PlannedWorker, task: SimulatedWorker, make_fault_plan: MakeWeather
) -> _Tally:
    """Run all schedules of a worker; return the results."""
    config = worker.config
    likeness = Likeness(
        worker.engine,
        config.revoke_timeout,
        config.stop_timeout,
        config.on_no_offset,
        config.on_out_of_range,
        task.values,
        worker.pool.has_children,
    )
    tally = _Tally(len(task.seeds))
    for seed in task.seeds:
        try:
            trace = simulate(
                seed,
                steps=task.steps,
                tell=task.tell,
                subject=task.subject,
                draw=likeness.draw,
                make_fault_plan=make_fault_plan,
            )
        except ViolationError as violation:
            tally.broken.append((seed, plan.mask(violation.violations[0])))
            _print_broken(plan, worker.name, violation, task, len(tally.broken))
        else:
            click.echo("\n".join(trace), nl=bool(trace), err=task.as_json)
        tally.ran += 1
        if task.stop_asked():
            break  # interrupted: still print what was found
    click.echo(f"{worker.name}: {tally.in_words()}", err=task.as_json)
    return tally


@define
class _Tally:
    """The results of one worker's schedules."""

    wanted: int
    ran: int = 0
    broken: list[tuple[int, str]] = field(factory=list)
    """The seeds of broken schedules, with the promise."""
    started: float = field(factory=perf_counter)

    def in_words(self) -> str:
        of_all = "" if self.ran == self.wanted else f" of {self.wanted}"
        schedules = f"{self.ran}{of_all} schedule{'' if self.wanted == 1 else 's'}"
        found = f"{len(self.broken)} with a broken promise" if self.broken else "every promise kept"
        return f"{schedules}, {found} ({perf_counter() - self.started:.1f} s)"

    def as_json(self) -> dict[str, Any]:
        return {
            "schedules": self.ran,
            "broken": [{"seed": seed, "promise": promise} for seed, promise in self.broken],
        }


def _fault_plan(  # noqa: PLR0913 - what is known before, and the schedule
    app: AppDefinition,
    plan: AppPlan,
    worker: PlannedWorker,
    state: Any,
    loop: InlineEventLoop,
    schedule: Schedule,
    rng: Random,
) -> FaultPlan:
    fault_plan = HandlerFaultPlan(schedule, rng, state)
    tools = CallTools(copy_test(worker, plan.config.topics), fault_plan.time_ms)
    handler = app.calls_of(worker, tools)
    called: Any = loop.running(handler) if worker.is_async else handler
    if worker.is_batch:
        fault_plan.batch_handler = called
    else:
        fault_plan.handler = called
    return fault_plan


def _print_broken(
    plan: AppPlan, worker: str, violation: ViolationError, task: SimulatedWorker, broken: int
) -> None:
    if task.tell:
        click.echo("\n".join(violation.trace), err=task.as_json)
    if broken <= _MOST_PRINTED:
        text = plan.mask(f"{worker}: seed {violation.seed}: {violation.violations[0]}")
        if not task.tell:
            text += f"\n  step by step: {task.replay} --only {worker} --seed {violation.seed}"
        click.echo(text, err=task.as_json)


def _replay(given: dict[str, Any]) -> str:
    words = ["window-consumer", "simulate", given["application"], "-c", str(given["config"])]
    for override in given["overrides"]:
        words += ["--set", override]
    if given["steps"] is not None:
        words += ["--steps", str(given["steps"])]
    if given["call_handlers"]:
        words.append("--call-handlers")
    if given["values"] is not None:
        words += ["--values", str(given["values"])]
    return shlex.join(words)


def _values(file: Path | None) -> tuple[bytes, ...]:
    if file is None:
        return (b"{}",)
    try:
        lines: Sequence[bytes] = file.read_bytes().splitlines()
    except OSError as error:
        raise UsageError(f"--values {file}: cannot be read: {error.strerror}") from error
    values = tuple(line for line in lines if line.strip())
    if not values:
        raise UsageError(f"--values {file}: has no value: write one per line")
    return values
