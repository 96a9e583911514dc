"""One run of the framework, as ``window-consumer run`` does it."""

from __future__ import annotations

import json
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any, cast

from attrs import frozen

from benchmarks import handlers, telemetry, usage
from benchmarks.calls import AsyncHandler, BatchHandler, Calls, Handler
from benchmarks.results import Run
from benchmarks.workloads import Workload
from window_consumer import App
from window_consumer.cli.logs import GC_THRESHOLD, SWITCH_INTERVAL_S, set_up, tune
from window_consumer.engine.counters import Counters
from window_consumer.model.errors import RunError
from window_consumer.plan.app_plan import AppPlan
from window_consumer.runtime.running import Running

WORKER = "work"
START_S = 30.0

_CHECK_S = 0.005
_DEADLINE_S = 60.0
"""After this long without a finished record, the rest counts as lost."""


@frozen
class Stretch:
    """How many records finished during a watch, and at which rate."""

    finished: int
    records_per_s: float


def planned(  # noqa: PLR0913 - a run's where and what
    bootstrap: str,
    topic: str,
    group: str,
    workload: Workload,
    handler: Handler | BatchHandler | AsyncHandler,
    keys: Mapping[str, Any] = MappingProxyType({}),
    app: App | None = None,
    sections: Mapping[str, Any] = MappingProxyType({}),
) -> tuple[App, AppPlan]:
    """Return an application with one worker, with the interpreter and log settings of ``run``.

    By default a failure stops the worker at once, so that no run needs a dead-letter topic.
    ``keys`` are further keys of the worker, and those with None are left out. ``app`` is given if
    it already has the handler. ``sections`` are further sections of the configuration.
    """
    worker: dict[str, Any] = {
        "topics": [topic],
        "group": group,
        "ordering": workload.ordering,
        "concurrency": workload.slots,
        "memory": workload.memory,
        "retry": {"attempts": 1, "when_spent": "stop"},
        **keys,
    }
    worker = {key: value for key, value in worker.items() if value is not None}
    if workload.ordering != "unordered" and worker.get("retry"):
        worker["retry"].setdefault("on_failure", "overtake")
    set_up("text", "warning")
    tune(SWITCH_INTERVAL_S, GC_THRESHOLD)
    given, app = app, app or App("benchmarks")
    if given is not None:
        """It was made where child processes can import it."""
    elif workload.batch:
        app.batch_handler(name=WORKER, max_records=workload.batch)(cast("BatchHandler", handler))
    else:
        app.handler(name=WORKER)(handler)
    with tempfile.TemporaryDirectory() as directory:
        config = Path(directory) / "workers.yaml"
        kafka = {"bootstrap.servers": bootstrap}
        config.write_text(json.dumps({"kafka": kafka, "workers": {WORKER: worker}, **sections}))
        return app, app.plan(config)


def run(  # noqa: PLR0913 - a run's where and what
    bootstrap: str,
    topic: str,
    group: str,
    workload: Workload,
    counts: Sequence[int],
    *,
    checked: bool = False,
    variant: str = telemetry.WITHOUT,
) -> Run:
    """Handle a topic's records once; ``counts`` are the records of each partition.

    A ``checked`` run records every call. A handler that waits always does: next to its wait that
    costs nearly nothing. Other runs are timed from outside, and their handler does nothing, see
    ``watch``. ``variant`` names a kind of telemetry.
    """
    noted = checked or workload.wants_every_call
    calls = Calls(counts, keyed=workload.ordering == "key") if noted else None
    handler = _coroutine(workload, calls) if workload.coroutine else _function(workload, calls)
    kind = telemetry.VARIANTS[variant]
    app, plan = planned(bootstrap, topic, group, workload, handler, sections=kind.sections)
    with telemetry.telling(kind):
        used = usage.cpu_s()
        running = app.start_plan(plan, start_timeout=START_S)
        stretch = watch(running, sum(counts))
        end(running)
        used = usage.cpu_s() - used
    if calls is None:
        lost = sum(counts) - stretch.finished
        return Run(stretch.records_per_s, used, usage.max_rss_mb(), lost=lost)
    return judged(calls, workload, used)


def _function(workload: Workload, calls: Calls | None) -> Handler | BatchHandler:
    work = handlers.waiting(workload) if workload.wait_s else handlers.nothing
    noting = calls and (calls.noting_batches if workload.batch else calls.noting)
    return noting(work) if noting else work


def _coroutine(workload: Workload, calls: Calls | None) -> AsyncHandler:
    work: AsyncHandler = handlers.coroutine_of_nothing
    if workload.wait_s:
        work = handlers.waiting_coroutine(workload)
    return calls.noting_coroutine(work) if calls else work


def watch(
    running: Running,
    expected: int,
    finished_of: Callable[[Counters], int] = lambda counters: counters.processed,
    worker: str = WORKER,
) -> Stretch:
    """Wait until ``expected`` records are finished, or nothing happens any more.

    It checks every few milliseconds; records finished before the first check do not count for the
    rate.
    """
    counters = running.counters[worker]
    finished = before = 0
    began = changed = time.perf_counter()
    while finished < expected and not running.wait(_CHECK_S):
        now, count = time.perf_counter(), finished_of(counters)
        if count != finished:
            if not finished and count < expected:
                began, before = now, count
            finished, changed = count, now
        elif not finished:
            began = now
        if now - changed > _DEADLINE_S:
            break
    return Stretch(finished, (finished - before) / max(changed - began, _CHECK_S))


def end(running: Running) -> None:
    """Stop the application; raise its failure if it has one."""
    running.stop()
    running.wait()
    if running.failure is not None:
        raise RunError(f"the worker failed: {running.failure}") from running.failure


def judged(calls: Calls, workload: Workload, used: float) -> Run:
    """Return the run's figures from its calls."""
    lost = calls.lost
    handled = sum(map(len, calls.ended)) - lost
    if not handled:
        raise RunError("no record was handled")
    ratios = {"busy": calls.busy(workload.slots)} if workload.slow_wait_s else {}
    return Run(
        records_per_s=handled / (calls.last_end - calls.first_start),
        cpu_s=used,
        max_rss_mb=usage.max_rss_mb(),
        lost=lost,
        duplicates=len(calls.repeated),
        order_violations=calls.order_violations(workload.ordering),
        ratios=ratios,
        notes={"latency_ms": calls.latency_s * 1000},
    )
