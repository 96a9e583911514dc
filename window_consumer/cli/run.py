"""``window-consumer run``: start the workers, handle signals, end with the right exit code."""

from __future__ import annotations

import logging
import os
import sys
from math import inf
from time import monotonic

import click

from window_consumer.app.startup import start
from window_consumer.cli.logs import MaskedFormatter
from window_consumer.cli.output import FAILED, OK, duration, explain
from window_consumer.cli.signals import Signals
from window_consumer.engine.windows_snapshot import WindowsSnapshot
from window_consumer.model.errors import StartStoppedError
from window_consumer.model.log_events import LogEvent
from window_consumer.plan.app_plan import AppPlan
from window_consumer.plan.definition import AppDefinition
from window_consumer.runtime.figures.stack_dump import CallPositions, stack_of_thread
from window_consumer.runtime.log import own_logger
from window_consumer.runtime.replica import number_of_this_copy, this_replica
from window_consumer.runtime.running import Running

_CHECK_S = 0.2
_SHORTEST_FLUSH_S = 0.3
"""The least time that a feature gets to send its remaining data."""

_AFTER_STOP_S = 4.5
"""How long after the stop timeout the process exits in any case."""


def run_until_stopped(
    app: AppDefinition, plan: AppPlan, formatter: MaskedFormatter, start_timeout: float | None
) -> int:
    """Run the plan until a signal or a failure ends it; return the exit code."""
    formatter.mask = plan.mask
    signals = Signals.install()
    logger = own_logger()
    ends = [feature.set_up(app.name) for feature in app.features.each]
    try:
        running = start(
            app,
            plan,
            start_timeout=start_timeout,
            stop_asked=signals.stop.is_set,
            replica=this_replica(),
        )
    except StartStoppedError as error:
        logger.info("%s", error, extra={"event": LogEvent.START_CANCELLED})
        return OK
    except Exception as error:
        number = number_of_this_copy()
        return explain(
            error, lambda text: plan.mask(f"process {number}: {text}" if number else text)
        )
    longest = max(worker.config.stop_timeout for worker in plan.workers)
    deadline: float | None = None
    while not running.wait(_CHECK_S):
        if signals.picture.is_set():
            signals.picture.clear()
            click.echo(plan.mask(stacks_and_windows(running)), err=True)
        if signals.stop.is_set() and deadline is None:
            logger.info(
                "stopping: draining for at most %g s (again: at once)",
                longest,
                extra={"event": LogEvent.STOP_REQUESTED, "timeout_s": longest},
            )
            running.stop()
            deadline = monotonic() + longest + _AFTER_STOP_S
        if deadline is not None and monotonic() > deadline:
            logger.error(
                "did not end in time; what was unfinished will run again",
                extra={"event": LogEvent.STOP_OVERRUN},
            )
            _end_now(FAILED)
    code = OK if running.failure is None else FAILED
    for end in filter(None, ends):
        end(inf if deadline is None else max(_SHORTEST_FLUSH_S, deadline - monotonic()))
    if running.left_behind:
        # A normal exit would wait for threads that never return, or stop them while they hold
        # work.
        _end_now(code)
    return code


def _end_now(code: int) -> None:
    logging.shutdown()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


def stacks_and_windows(running: Running) -> str:
    """Return the windows of all workers and the stacks of running handlers, as text for people."""
    lines = []
    pictures = running.snapshots()
    for worker in running.workers:
        picture = pictures.get(worker.name)
        if picture is None:
            lines.append(f"{worker.name}: the poll thread does not answer; its stack:")
            lines.extend(_indented(stack_of_thread(worker.loop.thread.ident or 0)))
            continue
        children = worker.children()
        lines.extend(_describe(worker.name, picture, worker.places(children)))
        lines.extend(
            f"  the process {child.name} ({child.pid}) {child.state}"
            for child in children
            if child.on is None
        )
    return "\n".join(lines)


def _describe(name: str, picture: WindowsSnapshot, places: CallPositions) -> list[str]:
    did = picture.counters
    done = f"{did.processed} processed, {did.retried} retried, {did.dead_lettered} dead-lettered"
    pace = (
        f"{picture.queued} slices for {picture.slots} slots, {picture.cost_s * 1e3:.3g} ms a call"
    )
    breaker = picture.breaker
    lines = [f"{name}: {done}, {pace}"]
    lines.append(
        f"  breaker {breaker.state} for {duration(breaker.seconds or 0.0)}, opened"
        f" {did.breaker_opened} times; {breaker.failed} of {breaker.calls} calls failed lately"
    )
    if picture.limit is not None:
        limit = picture.limit
        lines.append(f"  concurrency {limit.settled}, {limit.limit} now: {limit.why}")
    lines.extend(
        f"  {each.name} from {each.next_offset}: [{each.row.ljust(each.capacity_cells, '.')}]"
        f" {each.open} open, {each.buffered} buffered, {each.failed} failed,"
        f" {each.bytes} bytes{', paused' if each.paused else ''}"
        f"{', waits for its rate' if each.waits_for_rate else ''}"
        for each in picture.partitions
    )
    for call in sorted(picture.calls, key=lambda call: -call.seconds):
        given_up = ", abandoned" if call.abandoned else ""
        place = f"{call.name}@{call.offset} attempt {call.attempt}"
        lines.append(f"  {place} for {call.seconds:.1f} s{given_up}")
        stands = places.of(call)
        if stands.process:
            lines.append(f"    in the process {stands.process}")
        lines.extend(_indented(stands.stack))
    return lines


def _indented(text: str) -> list[str]:
    return [f"      {line}" for line in text.splitlines()]
