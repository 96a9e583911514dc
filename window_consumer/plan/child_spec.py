"""How child processes build a worker's handler: from plain values and the application's name.

A child imports the application as the parent did and finds the handlers in it. The configuration
comes from the parent, because the file may have changed before a child is replaced.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator, Mapping

from attrs import evolve, frozen

from window_consumer.config import (
    ErrorsConfig,
    KafkaConfig,
    Mask,
    MaskRules,
    RetryConfig,
    TopicsConfig,
    WorkerConfig,
)
from window_consumer.engine.retry.policy import RetryRules
from window_consumer.model.conditions import Condition
from window_consumer.model.copy_headers import attempts_before
from window_consumer.model.errors import UsageError
from window_consumer.model.log_events import LogEvent
from window_consumer.plan.app_plan import AppPlan, PlannedWorker
from window_consumer.plan.calls import copy_test
from window_consumer.plan.definition import AppDefinition
from window_consumer.plan.handlers import PlannedRoute
from window_consumer.plan.loading import load_app
from window_consumer.plan.start_timeout import LOGGER
from window_consumer.runtime.calls.caller import Caller
from window_consumer.runtime.calls.layer import CallLayer, CallTools, ChildLayer
from window_consumer.runtime.clock import SystemClock
from window_consumer.runtime.context import RecordOwner
from window_consumer.runtime.error_report import ErrorReports
from window_consumer.runtime.pools.processes.child_main import ChildTools


@frozen
class ChildSpec:
    """How to build a worker's handler in a child process. Pickled; called in the child."""

    application: str
    """``module:attribute``."""
    config: WorkerConfig
    topics: TopicsConfig
    conditions: Mapping[str, Condition]
    """The conditions of handlers that the configuration sets."""
    mask: Mask
    mask_rules: MaskRules
    errors: ErrorsConfig
    surroundings: tuple[str, ...]
    """Lifespan and middleware by name; the child must have the same."""
    layers: tuple[ChildLayer, ...] = ()
    """The layers that the child adds to those of the application."""

    def within(self, layers: Iterable[CallLayer]) -> ChildSpec:
        """Return a copy with the parts of these layers that belong in child processes."""
        found = [layer.in_children for layer in layers]
        return evolve(self, layers=tuple(each for each in found if each is not None))

    def __call__(self) -> ChildTools:
        """Import the application and build the handler, as in the parent."""
        app = load_app(self.application)
        missing = [name for name in self.config.handlers if name not in app.handlers]
        if missing:
            raise UsageError(
                f"{self.application} has no handler {missing[0]!r} when a child process imports it:"
                " register handlers while the module is imported, in every process"
            )
        if app.surroundings != self.surroundings:
            raise UsageError(
                f"{self.application} has {_listed(app.surroundings)} as lifespan and middleware"
                f" when a child process imports it, but {_listed(self.surroundings)} in its parent:"
                " register them while the module is imported, in every process"
            )
        routes = [
            PlannedRoute(handler, self.conditions.get(name) or handler.when)
            for name, handler in app.features.handlers_of(self.config, app.handlers).items()
        ]
        worker = PlannedWorker(self.config, tuple(routes), RetryRules(), {}, {}, {})

        def warn(event: LogEvent, text: str) -> None:
            LOGGER.warning("%s: %s", self.config.name, self.mask(text), extra={"event": event})

        faults = ErrorReports(
            self.mask, app.redactor, self.errors.message, self.mask_rules.error_text
        )
        layers, resources = [], app.resources_of_child()
        for each in self.layers:
            layer = each.begin()
            if layer is not None:
                layers.append(layer)
                resources = each.around(resources)
        is_copy = copy_test(worker, self.topics)
        tools = CallTools(is_copy, SystemClock().wall_ms, warn, faults)
        handler = app.calls_of(worker, tools, layers)
        rules = self.mask_rules
        whose = RecordOwner(
            self.config.name,
            worker.handler_names,
            lambda topic, key: rules.loggable_key([topic, *self.config.topics], key),
        )
        caller = Caller(handler, faults.failure, whose=whose)
        return ChildTools(caller, resources, attempts_before, self.config.handlers)


def child_specs_of(app: AppDefinition, plan: AppPlan) -> Mapping[str, ChildSpec]:
    """Return the child specs of workers whose pools have child processes, by worker.

    Raises UsageError if child processes could not import the application.
    """
    return {
        worker.name: child_spec_of(app, plan, worker)
        for worker in plan.workers
        if worker.pool.has_children
    }


def child_spec_of(app: AppDefinition, plan: AppPlan, worker: PlannedWorker) -> ChildSpec:
    """Return a worker's child spec; raise UsageError if a child could not import it."""
    conditions = {
        route.handler.name: route.when
        for route in worker.routes
        if isinstance(route.when, Condition) and route.handler.name in worker.config.routes
    }
    where = import_path(app, plan, worker)
    # Only the parent needs these: passwords, and classes that cannot be pickled.
    config = evolve(worker.config, kafka=KafkaConfig(), retry=RetryConfig(), routes={})
    return ChildSpec(
        where,
        config,
        plan.config.topics,
        conditions,
        plan.mask,
        plan.config.mask_rules,
        plan.config.errors,
        app.surroundings,
    )


def import_path(app: AppDefinition, plan: AppPlan, worker: PlannedWorker) -> str:
    """Return the ``module:attribute`` where a child process finds the application.

    Raises UsageError if there is none.
    """
    modules = dict.fromkeys(
        [*(route.handler.function.__module__ for route in worker.routes), *sys.modules]
    )
    for name in modules:
        if sys.modules.get(name) is sys.modules["__main__"]:
            continue  # under its other names, too
        found = next(_names_of(app, name), None)
        if found is not None:
            return f"{name}:{found}"
    place = plan.where("workers", worker.name, "pool")
    raise UsageError(
        f"{place}: workers.{worker.name}.pool is {worker.pool.name}, and {_why_not(app, worker)}"
    )


def _why_not(app: AppDefinition, worker: PlannedWorker) -> str:
    where = worker.routes[0].handler.place
    if next(_names_of(app, "__main__"), None) is not None:
        return (
            f"the application {app.name!r} is defined in the program itself ({where}), which child"
            " processes do not run again: move it to its own module, import it, and start it from"
            " here"
        )
    return (
        f"the application {app.name!r} ({where}) is not an attribute of any module, so child"
        " processes cannot import it: assign it at the top of a module, as in app = App(...), not"
        " within a function"
    )


def _listed(names: tuple[str, ...]) -> str:
    return ", ".join(names) or "nothing"


def _names_of(app: AppDefinition, module: str) -> Iterator[str]:
    attributes = vars(sys.modules[module]) if module in sys.modules else {}
    for name, value in list(attributes.items()):
        if value is app:
            yield name
