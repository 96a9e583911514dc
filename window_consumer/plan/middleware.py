"""The application's middleware: one layer of it around a worker's handlers."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import Any, Literal

from attrs import frozen

from window_consumer.model.errors import UsageError
from window_consumer.model.record import Record
from window_consumer.plan.handlers import AsyncHandler, Handler, is_async, qualname_of
from window_consumer.runtime.calls.layer import CallForm, CallSite, LayerPlace
from window_consumer.runtime.calls.result_guard import demanding, noting
from window_consumer.runtime.calls.steps import Called

__handler_steps__ = True  # its frames are not shown, see runtime/stack.py

BatchHandler = Callable[[list[Record]], object]
Middleware = (
    Callable[[Record, Handler], object]
    | Callable[[Record, AsyncHandler], Awaitable[object]]
    | Callable[[list[Record], BatchHandler], object]
)
Around = Literal["functions", "coroutines", "batches"]


@frozen
class MiddlewareSpec:
    """A middleware, and the kind of handlers that it wraps."""

    function: Callable[..., Any]
    around: Around | None = None
    """None wraps all."""

    @property
    def is_async(self) -> bool:
        """Whether it is a coroutine function."""
        return is_async(self.function)

    @property
    def name(self) -> str:
        """The function's name, for messages."""
        return qualname_of(self.function)

    def is_for(self, form: CallForm) -> bool:
        """Return whether it wraps handlers of this form."""
        if form.batches:
            return self.around == "batches"
        return self.around in (None, "coroutines" if form.coroutines else "functions")


@frozen
class MiddlewareLayer:
    """Middleware around each handler; the one registered first is the outermost.

    Middleware must not drop the results of handlers: that fails the call.
    """

    specs: Sequence[MiddlewareSpec]
    whose: str = "this application"
    """Whose handlers it surrounds, for messages."""
    place: LayerPlace = LayerPlace.MIDDLEWARE
    in_children: None = None

    def refuse(self, form: CallForm) -> None:
        """Raise UsageError for middleware that does not fit handlers of this form.

        A plain function that calls a coroutine function gets an object and returns before anything
        has run. A coroutine needs an event loop, which the threads of plain handlers lack.
        """
        for spec in self.specs:
            if form.batches and spec.around is None:
                raise UsageError(
                    f"@app.middleware {spec.name} gets one record a call, but {self.whose} has"
                    ' batch handlers: decorate it with @app.middleware(around="functions"), or'
                    ' "coroutines", and write another one, def m(records, call_next), with'
                    ' @app.middleware(around="batches") for what batch handlers need'
                )
            if spec.is_for(form) and spec.is_async != form.coroutines:
                refusal = _batch_refusal if form.batches else _refusal
                raise UsageError(refusal(self.whose, spec, coroutines=form.coroutines))

    def wrap(self, call: Called, site: CallSite) -> Called:
        """See CallLayer."""
        form = site.form
        around = [spec.function for spec in self.specs if spec.is_for(form)]
        if not around:
            return call
        wrapped = noting(call, coroutines=form.coroutines)
        for function in reversed(around):
            wrapped = (_around_batches if form.batches else _around)(function, wrapped)
        return demanding(wrapped, coroutines=form.coroutines)


def _around(function: Callable[..., object], call_next: Called) -> Called:
    def call(record: Record) -> object:
        return function(record, call_next)

    return call


def _around_batches(function: Callable[..., object], call_next: Called) -> Called:
    return partial(_call_function, function, call_next)


def _call_function(
    function: Callable[..., object], call_next: Called, records: list[Record]
) -> object:
    return function(records, call_next)


def _batch_refusal(whose: str, spec: MiddlewareSpec, *, coroutines: bool) -> str:
    kind = "a plain function" if coroutines else "a coroutine function"
    return (
        f"@app.middleware {spec.name} is {kind}, but the batch handlers of {whose} are"
        f" {'coroutines' if coroutines else 'plain functions'}: write it with"
        f" {'async def' if coroutines else 'def'}"
    )


def _refusal(whose: str, spec: MiddlewareSpec, *, coroutines: bool) -> str:
    if coroutines:
        kind, theirs, own = "a plain function", "coroutines", "functions"
        to_do = "write it as async def, with await call_next(record)"
    else:
        kind, theirs, own = "a coroutine function", "plain functions", "coroutines"
        to_do = "write it as a plain function"
    return (
        f"@app.middleware {spec.name} is {kind}, but the handlers of {whose} are {theirs}:"
        f" {to_do}; if the application has both kinds of handlers, decorate it with"
        f' @app.middleware(around="{own}") and write another one for the {theirs}'
    )
