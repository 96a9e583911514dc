"""``window-consumer status``: whether the workers at an address are healthy."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Final

import click

from window_consumer.admin.cli import worker_address
from window_consumer.admin.client import Access, AdminAddress, AdminAnswer, AskError, ask
from window_consumer.admin.doctor.causes import duration
from window_consumer.admin.doctor.worker_health import (
    ProblemKind,
    WorkerProblem,
    dead_per_min,
    problems_of,
)
from window_consumer.cli.options import json_option
from window_consumer.cli.output import FAILED, OK, exits, explain, print_json
from window_consumer.model.redaction import printable_line
from window_consumer.runtime.figures.worker_snapshot import WorkerSnapshot

UNREACHED: Final = 2
"""The address does not answer like a worker, so the problem is unknown."""


@click.command("status")
@worker_address
@json_option
@exits(
    {
        OK: "all are healthy",
        FAILED: "something is wrong",
        UNREACHED: "wrong usage, or the address did not answer",
    }
)
def status_command(*, url: str, token: str | None, authority: Path | None, as_json: bool) -> int:
    """Show whether the workers at an address are healthy.

    A line for each worker, with its state, lag and dead letters, and one for each problem.
    `doctor` looks for causes.
    """
    address = AdminAddress.parse(url)
    try:
        answer = ask(address, Access(token, authority), history=True)
    except AskError as error:
        explain(error)
        return UNREACHED
    found = [(worker, list(problems_of(worker))) for worker in answer.workers]
    of_address = list(_of_address(answer))
    healthy = not of_address and not any(problems for _, problems in found)
    if as_json:
        print_json(
            {
                "url": str(address),
                "healthy": healthy,
                "problems": [_problem_fields(each) for each in of_address],
                "workers": [_fields(*each) for each in found],
            }
        )
    else:
        for worker, problems in found:
            click.echo(printable_line(f"{_name(worker)}: {_figures(worker)}"))
            for each in problems:
                click.echo(printable_line(f"  ! {each.text}"))
        for each in of_address:
            click.echo(printable_line(f"! {each.text}"))
    return OK if healthy else FAILED


def _of_address(answer: AdminAnswer) -> Iterator[WorkerProblem]:
    for number in answer.missing:
        yield WorkerProblem(ProblemKind.MISSING, f"process {number} does not answer")
    if not answer.workers and not answer.missing:
        yield WorkerProblem(ProblemKind.NO_WORKERS, "there are no workers yet")


def _name(worker: WorkerSnapshot) -> str:
    return f"process {worker.process} {worker.name}" if worker.process else worker.name


def _figures(worker: WorkerSnapshot) -> str:
    windows = worker.windows
    if windows is None:
        return "silent"
    lag, seconds = _lag(worker)
    rate = dead_per_min(worker.history)
    parts = [
        worker.phase,
        f"{'?' if lag is None else lag} records lag, {duration(seconds or 0.0)}",
        f"{windows.running} in flight of {windows.limit_now}",
        f"{windows.counters.dead_lettered} dead-lettered"
        + ("" if rate is None else f" ({rate:.3g}/min)"),
        f"breaker {windows.breaker.state}",
    ]
    return "; ".join(parts)


def _lag(worker: WorkerSnapshot) -> tuple[int | None, float | None]:
    if worker.windows is None:
        return None, None
    seconds = max((each.lag.seconds for each in worker.windows.partitions), default=0.0)
    return worker.windows.lag, seconds


def _fields(worker: WorkerSnapshot, problems: Sequence[WorkerProblem]) -> dict[str, Any]:
    windows = worker.windows
    lag, lag_s = _lag(worker)
    fields: dict[str, Any] = {
        "worker": worker.name,
        "process": worker.process,
        "group": worker.group,
        "healthy": not problems,
        "state": worker.phase,
        "ready": worker.is_ready,
        "lag": lag,
        "lag_s": lag_s,
        "dead_per_min": dead_per_min(worker.history),
        "problems": [_problem_fields(each) for each in problems],
    }
    if windows is not None:
        pause = windows.pause
        fields |= {
            "in_flight": windows.running,
            "concurrency": windows.limit_now,
            "slots": windows.slots,
            "dead_lettered": windows.counters.dead_lettered,
            "breaker": windows.breaker.state,
            "paused": windows.halted,
            "pause": None
            if pause is None
            else {"user": pause.user, "reason": pause.reason, "seconds": pause.seconds},
        }
    return fields


def _problem_fields(problem: WorkerProblem) -> dict[str, str]:
    return {"kind": problem.kind, "text": problem.text}
