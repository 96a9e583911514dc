"""What a slot calls for a record: handlers and the layers around them, functions or coroutines."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, TypeVar

from window_consumer.config import TopicsConfig
from window_consumer.model.conditions import Condition
from window_consumer.model.conditions.lookup import IsCopy, RecordLookup, WallMs
from window_consumer.model.errors import UsageError
from window_consumer.model.log_events import Warn
from window_consumer.model.record import Record
from window_consumer.plan.app_plan import PlannedWorker
from window_consumer.plan.handlers import (
    Handler,
    Layer,
    PlannedRoute,
    When,
    with_batch_middleware,
    with_middleware,
)
from window_consumer.runtime.calls.batch_calls import BatchHandler
from window_consumer.runtime.calls.batch_layers import (
    BatchRoute,
    LaneOfRecord,
    routed_batches,
    with_batch_expiry,
)
from window_consumer.runtime.calls.expiry import with_expiry
from window_consumer.runtime.calls.routing import Route, routed

F = TypeVar("F", Handler, BatchHandler)


def handler_of(
    worker: PlannedWorker,
    middleware: Sequence[Layer],
    topics: TopicsConfig,
    wall_ms: WallMs,
    warn: Warn,
) -> Handler:
    """Return what to call for each record of a worker.

    From the outside in: expiry, routing, the transaction of ``once``, middleware, handler. A worker
    with one handler for everything, without ``ttl`` and ``once``, has none of our layers.
    """
    is_copy = _is_copy(worker, topics)
    shared: dict[Any, Any] = {}
    routes = [
        Route(
            route.handler.name,
            _once(
                route,
                worker,
                with_middleware(route.handler.call, middleware, coroutines=worker.is_async),
                shared,
            ),
            _matcher(route.when, is_copy, wall_ms),
        )
        for route in worker.routes
    ]
    handler = routed(routes, worker.config.otherwise)
    return with_expiry(handler, worker.expiry, is_copy, wall_ms, warn)


def batch_handler_of(
    worker: PlannedWorker,
    middleware: Sequence[Layer],
    topics: TopicsConfig,
    wall_ms: WallMs,
    warn: Warn,
) -> BatchHandler:
    """Return what to call for each batch of a worker of batch handlers, in the same layers."""
    is_copy = _is_copy(worker, topics)
    shared: dict[Any, Any] = {}
    routes = [
        BatchRoute(
            route.handler.name,
            _once(
                route, worker, with_batch_middleware(route.handler.call_batch, middleware), shared
            ),
            _matcher(route.when, is_copy, wall_ms),
        )
        for route in worker.routes
    ]
    coroutines = worker.is_async
    lane_of = _LANES_OF_RECORDS.get(worker.config.ordering)
    handler = routed_batches(routes, worker.config.otherwise, lane_of, coroutines=coroutines)
    expiry = worker.expiry
    return with_batch_expiry(handler, expiry, is_copy, wall_ms, warn, coroutines=coroutines)


def _once(route: PlannedRoute, worker: PlannedWorker, handler: F, shared: dict[Any, Any]) -> F:
    """Return the handler within transactions, where its decorator says ``once=``.

    ``shared`` keeps what all routes of the worker have in common.
    """
    once = route.handler.once
    if once is None:
        return handler
    around: F = once.around(
        handler, worker.config, shared, batches=worker.is_batch, coroutines=worker.is_async
    )
    return around


_LANES_OF_RECORDS: Mapping[str, LaneOfRecord] = {
    "key": lambda record: record.key,
    "partition": lambda _record: "partition",
}


def _matcher(
    when: When | None, is_copy: IsCopy, wall_ms: WallMs
) -> Callable[[Record], object] | None:
    if not isinstance(when, Condition):
        return when
    holds = when.expression.evaluate
    return lambda record: holds(RecordLookup(record, is_copy, wall_ms))


def _is_copy(worker: PlannedWorker, topics: TopicsConfig) -> IsCopy:
    """Return a predicate for the worker's retry topics by name, which caches its answers."""
    known: dict[str, bool] = {}

    def is_copy(topic: str) -> bool:
        answer = known.get(topic)
        if answer is None:
            answer = known[topic] = worker.config.is_retry_topic(topic, topics)
        return answer

    return is_copy


def refuse_once(workers: Iterable[PlannedWorker]) -> None:
    """Raise UsageError where a handler cannot be called in the transactions of its ``once``."""
    for worker in workers:
        for route in worker.routes:
            if route.handler.once is not None:
                route.handler.once.refuse(
                    route.handler.function,
                    worker.config,
                    is_async=worker.is_async,
                    forks=worker.pool.has_children,
                )


def refuse_mixtures(workers: Iterable[PlannedWorker], layers: Sequence[Layer]) -> None:
    """Raise UsageError for middleware that cannot wrap a handler that it applies to.

    A plain function that calls a coroutine function gets an object back and returns before anything
    has run. A coroutine needs an event loop, which the threads of plain handlers do not have.
    """
    for worker in workers:
        whose = f"worker {worker.name} ({worker.handler_names})"
        refuse = refuse_batch_mixture if worker.is_batch else refuse_mixture
        refuse(whose, layers, coroutines=worker.is_async)


def refuse_mixture(whose: str, layers: Sequence[Layer], *, coroutines: bool) -> None:
    """Raise UsageError where a middleware cannot wrap handlers of this kind."""
    for layer in layers:
        if layer.is_for(coroutines=coroutines) and layer.is_async != coroutines:
            raise UsageError(_refusal(whose, layer, coroutines=coroutines))


def refuse_batch_mixture(whose: str, layers: Sequence[Layer], *, coroutines: bool) -> None:
    """Raise UsageError for middleware that batch handlers would miss or cannot have."""
    for layer in layers:
        if layer.around is None:
            raise UsageError(
                f"@app.middleware {layer.name} gets one record a call, and {whose} has batch"
                ' handlers: decorate it with @app.middleware(around="functions"), or'
                ' "coroutines", and write another one, def m(records, call_next), with'
                ' @app.middleware(around="batches") for what batch handlers need'
            )
        if layer.around == "batches" and layer.is_async != coroutines:
            kind = "a plain function" if coroutines else "a coroutine function"
            needed = "async def" if coroutines else "def"
            raise UsageError(
                f"@app.middleware {layer.name} is {kind}, and the batch handlers of {whose} are"
                f" {'coroutines' if coroutines else 'plain functions'}: write it with {needed}"
            )


def _refusal(whose: str, layer: Layer, *, coroutines: bool) -> str:
    if coroutines:
        kind, theirs, own = "a plain function", "coroutines", "functions"
        to_do = "write it as async def, with await call_next(record)"
    else:
        kind, theirs, own = "a coroutine function", "plain functions", "coroutines"
        to_do = "write it as a plain function"
    return (
        f"@app.middleware {layer.name} is {kind}, and the handlers of {whose} are {theirs}:"
        f" {to_do}; where the application has both kinds of handlers, decorate it with"
        f' @app.middleware(around="{own}") and write another one for the {theirs}'
    )
