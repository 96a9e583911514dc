"""The layer that chooses one of a worker's handlers for each record."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Literal

from attrs import frozen

from window_consumer.model.errors import NoHandlerMatched, Unroutable
from window_consumer.model.record import Record
from window_consumer.runtime.calls.caller import Handler

__handler_layer__ = True  # its frames are no part of a failure, see error_report.py

Otherwise = Literal["dead_letter", "skip", "stop"]


@frozen
class Route:
    """A handler and the records that it accepts."""

    name: str
    handler: Handler
    """Includes its middleware."""
    matches: Callable[[Record], object] | None
    """Called with a record; None accepts every record. An exception counts as the handler's."""


def routed(routes: Sequence[Route], otherwise: Otherwise) -> Handler:
    """Return a handler that calls the first handler, in order, that accepts a record.

    If none does, it raises Unroutable or NoHandlerMatched.
    """
    if len(routes) == 1 and routes[0].matches is None:
        return routes[0].handler
    steps = [(route.name, route.matches, route.handler) for route in routes]
    nobody = f"is for none of the handlers {', '.join(route.name for route in routes)}"

    def call(record: Record) -> object:
        context = record._call  # noqa: SLF001 - the layers belong to the slots' loop, which sets it
        for name, matches, handler in steps:
            context.handler = name
            if matches is None or matches(record):
                return handler(record)
        if otherwise == "skip":
            raise NoHandlerMatched(nobody)
        raise Unroutable(nobody, otherwise)

    return call
