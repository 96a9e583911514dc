"""The layers around a worker's batch handlers: expiry and routing."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from functools import partial
from typing import TYPE_CHECKING

from attrs import frozen

from window_consumer.model.conditions.lookup import IsCopy, WallMs
from window_consumer.model.errors import Expired, NoHandlerMatched, Skip, Unroutable
from window_consumer.model.log_events import Warn
from window_consumer.model.record import Record
from window_consumer.runtime.calls.batch_calls import (
    Answer,
    BatchHandler,
    Failed,
    HeldResults,
    SortedResults,
    answers_of,
    failed_of,
)
from window_consumer.runtime.calls.batch_steps import Steps, layered
from window_consumer.runtime.calls.expiry import ExpiryRules, with_expiry

if TYPE_CHECKING:
    from window_consumer.runtime.calls.routing import Otherwise

__handler_layer__ = True  # its frames are no part of a failure, see error_report.py

LaneOfRecord = Callable[[Record], Hashable | None]


@frozen
class BatchRoute:
    """A batch handler and the records that it accepts."""

    name: str
    handler: BatchHandler
    """Includes its middleware."""
    matches: Callable[[Record], object] | None
    """Called with a record; None accepts every record. An exception counts as the handler's."""


def with_batch_expiry(
    handler: BatchHandler,
    rules: ExpiryRules,
    is_copy: IsCopy,
    wall_ms: WallMs,
    warn: Warn,
    *,
    coroutines: bool = False,
) -> BatchHandler:
    """Remove expired records from a batch before the handler sees it."""
    if rules.ttl_s is None and rules.header is None:
        return handler
    judge = with_expiry(lambda _record: None, rules, is_copy, wall_ms, warn)

    def steps(records: list[Record]) -> Steps:
        expired: list[Failed] = []
        for record in records:
            try:
                judge(record)
            except Expired as error:
                expired.append((record, error))
        if not expired:
            return (yield partial(handler, records))
        expired_ids = {id(record) for record, _ in expired}
        left = [record for record in records if id(record) not in expired_ids]
        if not left:
            raise SortedResults(expired)
        try:
            returned = yield partial(handler, left)
        except SortedResults as error:
            failed = [*expired, *failed_of(error, left)]
            raise SortedResults(failed, error.handlers, error.answers) from None
        except BaseException as error:
            raise SortedResults([*expired, *failed_of(error, left)]) from None
        raise SortedResults(expired, answers=answers_of(left, returned))

    return layered(steps, coroutines=coroutines)


def routed_batches(
    routes: Sequence[BatchRoute],
    otherwise: Otherwise,
    lane_of: LaneOfRecord | None,
    *,
    coroutines: bool = False,
) -> BatchHandler:
    """Return a handler that splits a batch among the handlers that accept its records.

    Each handler gets one list, or several in turn where the order of a lane requires it. After a
    failed record, later ones of its lane are not called. A record that no handler accepts fails
    with Unroutable or NoHandlerMatched.
    """
    if len(routes) == 1 and routes[0].matches is None:
        return routes[0].handler
    return layered(_Router(routes, otherwise, lane_of), coroutines=coroutines)


class _Router:
    """Splits batches. Any slot may call it."""

    def __init__(
        self, routes: Sequence[BatchRoute], otherwise: Otherwise, lane_of: LaneOfRecord | None
    ):
        self._routes = routes
        self._otherwise = otherwise
        self._lane_of: LaneOfRecord = lane_of or (lambda _record: None)
        self._nobody = f"is for none of the handlers {', '.join(route.name for route in routes)}"

    def __call__(self, records: list[Record]) -> Steps:
        failed: list[Failed] = []
        handlers: dict[int, str] = {}
        parts = self._parts(records, failed, handlers)
        context = records[0]._call  # noqa: SLF001 - the layers belong to the slots' loop
        answers: list[Answer] = []
        held_lanes: set[Hashable] = set()
        for route, part in parts:
            called = [r for r in part if self._lane_of(r) not in held_lanes]
            failed += [(r, HeldResults()) for r in part if self._lane_of(r) in held_lanes]
            context.handler = route.name
            handlers.update((id(record), route.name) for record in called)
            unfinished: list[Record] = []
            try:
                if called:
                    answered = answers_of(called, (yield partial(route.handler, called)))
                    answers += answered
                    unfinished += called if answered else ()
            except BaseException as error:
                if isinstance(error, SortedResults):
                    answers += error.answers
                    unfinished += [each for records, _ in error.answers for each in records]
                reasons = failed_of(error, called)
                failed += reasons
                unfinished += [each for each, why in reasons if not isinstance(why, Skip)]
            held_lanes.update(map(self._lane_of, unfinished))
            held_lanes.discard(None)
        if failed or answers:
            raise SortedResults(failed, handlers, answers)
        return None

    def _parts(
        self, records: list[Record], failed: list[Failed], handlers: dict[int, str]
    ) -> list[tuple[BatchRoute, list[Record]]]:
        """Choose each record's handler; the parts keep the order of every lane."""
        parts: list[tuple[BatchRoute, list[Record]]] = []
        newest: dict[BatchRoute, int] = {}
        last: dict[Hashable, int] = {}
        for record in records:
            route = self._chosen(record, failed, handlers)
            if route is None:
                continue
            lane = self._lane_of(record)
            after = 0 if lane is None else last.get(lane, 0)
            index = newest.get(route, -1)
            if index < after:
                index = newest[route] = len(parts)
                parts.append((route, []))
            parts[index][1].append(record)
            last[lane] = index
        return parts

    def _chosen(
        self, record: Record, failed: list[Failed], handlers: dict[int, str]
    ) -> BatchRoute | None:
        for route in self._routes:
            try:
                if route.matches is None or route.matches(record):
                    return route
            except BaseException as error:
                failed.append((record, error))
                handlers[id(record)] = route.name
                return None
        if self._otherwise == "skip":
            failed.append((record, NoHandlerMatched(self._nobody)))
        else:
            failed.append((record, Unroutable(self._nobody, self._otherwise)))
        return None
