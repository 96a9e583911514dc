"""Chooses one of a worker's handlers for each record, and divides batches among them."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from functools import partial
from typing import Literal

from attrs import frozen

from window_consumer.model.errors import NoHandlerMatched, Skip, Unroutable
from window_consumer.model.record import Record
from window_consumer.runtime.calls.batch_calls import (
    Answer,
    Failed,
    HeldResults,
    SortedResults,
    answers_of,
    failed_of,
)
from window_consumer.runtime.calls.layer import CallForm
from window_consumer.runtime.calls.steps import Called, Steps

__handler_layer__ = True  # its frames are no part of a failure, see runtime/stack.py

Otherwise = Literal["dead_letter", "skip", "stop"]

LaneOfRecord = Callable[[Record], Hashable | None]


@frozen
class Route:
    """A handler and the records that it accepts."""

    name: str
    call: Called
    """The handler within its layers."""
    matches: Callable[[Record], object] | None
    """Called with a record; None accepts every record. An exception counts as the handler's."""


def routed(
    routes: Sequence[Route],
    otherwise: Otherwise,
    form: CallForm,
    lane_of: LaneOfRecord | None = None,
) -> Called:
    """Return a call of the first handler, in order, that accepts a record.

    If none does, it raises Unroutable or NoHandlerMatched. Each handler gets one list of a batch,
    or several in turn if the order of a lane requires it. After a failed record, later ones of its
    lane are not called.
    """
    if len(routes) == 1 and routes[0].matches is None:
        return routes[0].call
    if not form.batches:
        return _choosing([(route, route.call) for route in routes], otherwise)
    choose = _choosing([(route, _returning(route)) for route in routes], otherwise)
    return form.stepped(_BatchRouter(choose, lane_of))


def _choosing(routes: Sequence[tuple[Route, Called]], otherwise: Otherwise) -> Called:
    steps = [(route.name, route.matches, call) for route, call in routes]
    nobody = f"is for none of the handlers {', '.join(route.name for route, _ in routes)}"

    def call_first(record: Record) -> object:
        context = record._call  # noqa: SLF001 - the layers belong to the slots' loop, which sets it
        for name, matches, call in steps:
            context.handler = name
            if matches is None or matches(record):
                return call(record)
        if otherwise == "skip":
            raise NoHandlerMatched(nobody)
        raise Unroutable(nobody, otherwise)

    return call_first


def _returning(route: Route) -> Called:
    return lambda _record: route


class _BatchRouter:
    """Divides batches. Any slot may call it."""

    def __init__(self, choose: Called, lane_of: LaneOfRecord | None):
        self._choose = choose
        self._lane_of: LaneOfRecord = lane_of or (lambda _record: None)

    def __call__(self, records: list[Record]) -> Steps:
        failed: list[Failed] = []
        handlers: dict[int, str] = {}
        parts = self._parts(records, failed, handlers)
        context = records[0]._call  # noqa: SLF001 - the layers belong to the slots' loop
        answers: list[Answer] = []
        held_lanes: set[Hashable] = set()
        for route, part in parts:
            called = part
            if held_lanes:
                called = [r for r in part if self._lane_of(r) not in held_lanes]
                failed += [(r, HeldResults()) for r in part if self._lane_of(r) in held_lanes]
            context.handler = route.name
            handlers.update((id(record), route.name) for record in called)
            unfinished: list[Record] = []
            try:
                if called:
                    answered = answers_of(called, (yield partial(route.call, called)))
                    answers += answered
                    unfinished += called if answered else ()
            except GeneratorExit:
                raise  # the steps were dropped
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
    ) -> list[tuple[Route, list[Record]]]:
        """Choose each record's handler; the parts keep the order of every lane."""
        parts: list[tuple[Route, list[Record]]] = []
        newest: dict[Route, int] = {}
        last: dict[Hashable, int] = {}
        for record in records:
            try:
                route = self._choose(record)
            except BaseException as error:
                failed.append((record, error))
                if not isinstance(error, Unroutable):  # it failed in the handler's condition
                    handlers[id(record)] = record._call.handler  # noqa: SLF001 - as above
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
