"""Which handlers a worker runs, and for which records."""

from __future__ import annotations

import itertools
from collections.abc import Mapping

from attrs import frozen

from window_consumer.app.handlers import HandlerSpec, When
from window_consumer.config import Loaded, WorkerConfig
from window_consumer.model.conditions import Condition
from window_consumer.model.errors import ConfigError


@frozen
class PlannedRoute:
    """A handler of a worker, and for which records it is: None is for all."""

    handler: HandlerSpec
    when: When | None

    @property
    def in_words(self) -> str:
        """Say what it is for, the way that the configuration has it."""
        if isinstance(self.when, Condition):
            return f"{self.handler.name} where {self.when}"
        if self.when is None:
            return self.handler.name
        return f"{self.handler.name} where {getattr(self.when, '__qualname__', self.when)}(record)"


def planned_routes(
    loaded: Loaded, worker: WorkerConfig, handlers: Mapping[str, HandlerSpec]
) -> tuple[PlannedRoute, ...]:
    """Find each handler its condition; the configuration's replaces the decorator's."""
    routes = []
    for name in worker.handlers:
        spec = handlers[name]
        expression = worker.routes.get(name)
        when = spec.when if expression is None else Condition(expression)
        routes.append(PlannedRoute(spec, when))
    for route, later in itertools.pairwise(routes):
        if route.when is None:
            where = loaded.where(("workers", worker.name, "handler"))
            raise ConfigError(
                f"{where}: workers.{worker.name}.handler: {later.handler.name} is never called:"
                f" {route.handler.name} before it takes every record; put that last, or give it"
                " a condition, by when= or below routes"
            )
    kinds = {route.handler.is_async: route.handler.name for route in routes}
    if len(kinds) > 1:
        where = loaded.where(("workers", worker.name, "handler"))
        raise ConfigError(
            f"{where}: workers.{worker.name}.handler: {kinds[True]} is a coroutine and"
            f" {kinds[False]} a plain function: one worker runs its handlers either on an event"
            " loop or on threads; write them alike, or give each kind a worker of its own"
        )
    if worker.pool == "processes" and (why := _no_processes(routes[0].handler)):
        where = loaded.where(("workers", worker.name, "pool"))
        raise ConfigError(
            f"{where}: workers.{worker.name}.pool is processes, and {routes[0].handler.name} {why}"
        )
    return tuple(routes)


def _no_processes(handler: HandlerSpec) -> str | None:
    if handler.is_async:
        return (
            "is a coroutine, which runs on an event loop: write it as a plain function, or leave"
            " pool out"
        )
    return None
