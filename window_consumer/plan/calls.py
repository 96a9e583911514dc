"""The callable of a slot: a worker's handlers within their layers."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from window_consumer.config import TopicNames, TopicsConfig
from window_consumer.model.conditions import Condition
from window_consumer.model.conditions.lookup import IsCopy, RecordLookup
from window_consumer.model.record import Record
from window_consumer.plan.app_plan import PlannedWorker
from window_consumer.plan.handler_types.parameters import DecodingLayer
from window_consumer.plan.handlers import HandlerSpec, Transactional, When
from window_consumer.plan.middleware import MiddlewareLayer, MiddlewareSpec
from window_consumer.runtime.calls.expiry import ExpiryLayer
from window_consumer.runtime.calls.layer import (
    CallLayer,
    CallSite,
    CallTools,
    LayerPlace,
    in_order,
    surrounded,
)
from window_consumer.runtime.calls.routing import LaneOfRecord, Route, routed
from window_consumer.runtime.calls.steps import Called


def layers_of(worker: PlannedWorker, middleware: Sequence[MiddlewareSpec]) -> list[CallLayer]:
    """Return the layers that the application and its configuration put around a worker's calls."""
    whose = f"worker {worker.name} ({worker.handler_names})"
    parameters = {route.handler.name: route.handler.parameters for route in worker.routes}
    return [
        ExpiryLayer(worker.expiry),
        *_once_layers(worker),
        MiddlewareLayer(middleware, whose),
        DecodingLayer(parameters),
    ]


def _once_layers(worker: PlannedWorker) -> list[CallLayer]:
    functions: dict[Transactional, dict[str, Callable[..., object]]] = {}
    for route in worker.routes:
        spec = route.handler
        if spec.once is not None:
            functions.setdefault(spec.once, {})[spec.name] = spec.function
    shared: dict[Any, Any] = {}
    forks = worker.pool.has_children
    return [
        once.layer_of(worker.config, handlers, shared, has_children=forks)
        for once, handlers in functions.items()
    ]


def refuse_layers(workers: Iterable[PlannedWorker], middleware: Sequence[MiddlewareSpec]) -> None:
    """Raise UsageError where a layer cannot surround the handlers of a worker."""
    for worker in workers:
        for layer in layers_of(worker, middleware):
            layer.refuse(worker.form)


def call_of(worker: PlannedWorker, layers: Iterable[CallLayer], tools: CallTools) -> Called:
    """Return the callable for each record or batch of a worker: its handlers within ``layers``.

    Without any active layer, it is the function of the only handler.
    """
    ordered, form = in_order(layers), worker.form
    outer = [layer for layer in ordered if layer.place < LayerPlace.ROUTES]
    inner = [layer for layer in ordered if layer.place > LayerPlace.ROUTES]
    routes = [
        Route(
            route.handler.name,
            surrounded(
                _function(route.handler, tools), inner, CallSite(form, tools, route.handler.name)
            ),
            _matcher(route.when, tools),
        )
        for route in worker.routes
    ]
    lane_of = _LANES_OF_RECORDS.get(worker.config.ordering)
    call = routed(routes, worker.config.otherwise, form, lane_of)
    return surrounded(call, outer, CallSite(form, tools))


def _function(handler: HandlerSpec, tools: CallTools) -> Called:
    return handler.function if handler.made_with is None else handler.made_with(tools)


_LANES_OF_RECORDS: Mapping[str, LaneOfRecord] = {
    "key": lambda record: record.key,
    "partition": lambda _record: "partition",
}


def _matcher(when: When | None, tools: CallTools) -> Callable[[Record], object] | None:
    if not isinstance(when, Condition):
        return when
    holds, is_copy, wall_ms = when.expression.evaluate, tools.is_copy, tools.wall_ms
    return lambda record: holds(RecordLookup(record, is_copy, wall_ms))


def copy_test(worker: PlannedWorker, topics: TopicsConfig) -> IsCopy:
    """Return a predicate for the worker's retry topics by name, which caches its answers."""
    known: dict[str, bool] = {}

    def is_copy(topic: str) -> bool:
        answer = known.get(topic)
        if answer is None:
            answer = known[topic] = TopicNames(worker.config, topics).is_read(topic)
        return answer

    return is_copy
