"""The start of an application: first what runs beside the workers, then the workers."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack

from window_consumer.app.limits.warnings import process_warnings
from window_consumer.app.wiring import source_maker, wire
from window_consumer.model.log_events import LogEvent
from window_consumer.plan.app_plan import AppPlan
from window_consumer.plan.child_spec import child_specs_of
from window_consumer.plan.definition import AppDefinition
from window_consumer.plan.lifespans import resources_on
from window_consumer.plan.preflight import prepare
from window_consumer.plan.start_timeout import LOGGER, StartTimeout
from window_consumer.runtime.pools.event_loop import EventLoop
from window_consumer.runtime.replica import ReplicaIdentity
from window_consumer.runtime.running import Running


def start(
    app: AppDefinition,
    plan: AppPlan,
    *,
    start_timeout: float | None,
    stop_asked: Callable[[], bool],
    replica: ReplicaIdentity | None,
) -> Running:
    """Start a checked plan, see ``App.start_plan``."""
    child_specs = child_specs_of(app, plan)
    for worker in plan.workers:
        for warning in process_warnings(worker):
            LOGGER.warning(
                "%s: %s", worker.name, warning, extra={"event": LogEvent.CONCURRENCY_EXCEEDED}
            )
    with ExitStack() as beside:
        starting = app.features.starting(app.name, plan, replica, app.token_function)
        features = beside.enter_context(starting)
        prepared = prepare(plan, app.token_function, StartTimeout(start_timeout, stop_asked))
        beside.enter_context(features.beside(prepared))
        loops = {
            each.name: EventLoop(f"wc-{each.name}-loop") for each in plan.workers if each.is_async
        }
        make_workers = wire(app, plan, prepared, loops, child_specs, features)

        def stop(error: BaseException) -> None:
            running.lifespan_is_over(error)

        resources = resources_on(app.lifespan_function, loops, plan, stop)
        # From here on, everything beside the workers stops when they end.
        ends = beside.pop_all().close
        running = Running(make_workers, resources, LOGGER, ends, source_maker(prepared))
        features.attach(running)
        return running.start(stop_asked)
    raise AssertionError("nothing that is entered here swallows exceptions")
