"""Layers inside and outside of middleware that keep results from getting lost.

Middleware written for handlers without results may call the next layer and drop its result. The
record would finish with nothing produced.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from inspect import isawaitable
from typing import Any

from window_consumer.engine.scheduling.slice_results import RecordsReturned
from window_consumer.engine.scheduling.slices import Work
from window_consumer.model.produce import results_of
from window_consumer.model.record import Call, Message, Record
from window_consumer.runtime.calls.steps import COROUTINE, Called

__handler_layer__ = True  # its frames are no part of a failure, see runtime/stack.py

_LOST = (
    "the handler returned records to produce, but a middleware around it returned nothing:"
    " return the result of call_next (or an empty list, to produce nothing)"
)


def noting(handler: Called, *, coroutines: bool) -> Called:
    """Return a call that marks its records' call if it has results; the inner layer."""

    def record(given: Any, returned: object) -> object:
        if returned is not None and results_of(returned):
            _call_of(given).owes = True
        return returned

    return _followed(handler, record, coroutines=coroutines)


def demanding(handler: Called, *, coroutines: bool) -> Called:
    """Return a call that raises TypeError if marked results got lost; the outer layer."""

    def demand(given: Any, returned: object) -> object:
        if returned is None and _call_of(given).owes:
            raise TypeError(_LOST)
        return returned

    followed = _followed(handler, demand, coroutines=coroutines)

    def call(given: Any) -> object:
        _call_of(given).owes = False
        return followed(given)

    return call


def _followed(handler: Called, by: Callable[[Any, object], object], *, coroutines: bool) -> Called:
    """Return a call whose result passes through ``by`` once it is available."""

    def call(given: Any) -> object:
        return by(given, handler(given))

    async def later(given: Any) -> object:
        returned = handler(given)
        if type(returned) is COROUTINE or isawaitable(returned):
            returned = await returned
        return by(given, returned)

    return later if coroutines else call


def _call_of(given: Record | list[Record]) -> Call:
    record = given if isinstance(given, Record) else given[0]
    return record._call  # noqa: SLF001 - shared by the records of a slice


def record_results(slice_: Work, messages: Sequence[Message], returned: object) -> bool:
    """Record the results of a call, and return whether there are any.

    ``messages`` are the records of the call: one, or a batch. If True, further records of their
    lanes must be held back, as after a failure. Call it only if the handler returned something,
    before the slot claims its next record. Raises TypeError for an invalid result, which counts as
    the handler's error.
    """
    results = results_of(returned)
    if results:
        call = RecordsReturned(messages, results, slice_.call.handler)
        slice_.deviate().returned.append(call)
    return bool(results)
