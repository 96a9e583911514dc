"""What a slot calls for a record: a worker's handlers and the layers around them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from window_consumer.app.handlers import (
    Handler,
    Layer,
    When,
    with_batch_middleware,
    with_middleware,
)
from window_consumer.app.plan import PlannedWorker
from window_consumer.config import TopicsConfig
from window_consumer.model.conditions import Condition
from window_consumer.model.record import Record
from window_consumer.model.record_lookup import IsCopy, RecordLookup, WallMs
from window_consumer.runtime.batch_calls import BatchHandler
from window_consumer.runtime.batch_layers import (
    BatchRoute,
    LaneOfRecord,
    routed_batches,
    with_batch_expiry,
)
from window_consumer.runtime.expiry import Warn, with_expiry
from window_consumer.runtime.routing import Route, routed


def handler_of(
    worker: PlannedWorker,
    middleware: Sequence[Layer],
    topics: TopicsConfig,
    wall_ms: WallMs,
    warn: Warn,
) -> Handler:
    """Return what to call for each record of a worker.

    From the outside in: what has expired is kept away, a handler is chosen, the middleware, the
    handler. A worker with one handler for everything and without ``ttl`` has no layers of ours.
    """
    is_copy = _is_copy(worker, topics)
    routes = [
        Route(
            route.handler.name,
            with_middleware(route.handler.call, middleware, coroutines=worker.is_async),
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
    """Return what to call for each batch of a worker of batch handlers, layered the same way."""
    is_copy = _is_copy(worker, topics)
    routes = [
        BatchRoute(
            route.handler.name,
            with_batch_middleware(route.handler.call_batch, middleware),
            _matcher(route.when, is_copy, wall_ms),
        )
        for route in worker.routes
    ]
    coroutines = worker.is_async
    lane_of = _LANES_OF_RECORDS.get(worker.config.ordering)
    handler = routed_batches(routes, worker.config.otherwise, lane_of, coroutines=coroutines)
    expiry = worker.expiry
    return with_batch_expiry(handler, expiry, is_copy, wall_ms, warn, coroutines=coroutines)


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
    """Tell the worker's retry topics by their names, each worked out once."""
    known: dict[str, bool] = {}

    def is_copy(topic: str) -> bool:
        answer = known.get(topic)
        if answer is None:
            answer = known[topic] = worker.config.is_retry_topic(topic, topics)
        return answer

    return is_copy
