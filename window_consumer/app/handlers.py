"""What the decorators collect: handlers with their defaults, middleware, the lifespan."""

from __future__ import annotations

import contextlib
import inspect
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Any, TypeVar

from attrs import field, frozen

from window_consumer.app.parameters import Parameters
from window_consumer.model.conditions import Condition
from window_consumer.model.errors import UsageError
from window_consumer.model.record import Record

F = TypeVar("F", bound=Callable[..., object])
Handler = Callable[[Record], object]
Middleware = Callable[[Record, Handler], object]
When = Condition | Callable[[Record], object]
"""A condition on a record, or a function that tells by its truth."""

Lifespan = Callable[[], Iterator[Any]] | Callable[[], AbstractContextManager[Any]]


@frozen
class HandlerSpec:
    """A decorated function and what its decorator says."""

    name: str
    function: Callable[..., object]
    defaults: Mapping[str, Any]
    """Raw values of a worker's keys, for the configuration to start from."""
    when: When | None = None
    """For which records it is; None is for all."""
    parameters: Parameters = field(factory=Parameters)
    """What the function takes."""

    @property
    def call(self) -> Handler:
        """What is called with a record alone: the function itself where it takes nothing else."""
        return self.parameters.called_with(self.function)

    @property
    def place(self) -> str:
        """Where the function stands, for messages."""
        function = inspect.unwrap(self.function)
        code = getattr(function, "__code__", None)
        return f"{code.co_filename}:{code.co_firstlineno}" if code else repr(function)


def checked(function: F, what: str) -> F:
    """Return a function that can be called plainly; UsageError for those that cannot.

    Calling a coroutine or generator function only makes an object: the record would count as
    done although nothing ran.
    """
    bare = inspect.unwrap(function)
    if not callable(function):
        raise UsageError(f"{what}: {function!r} is not a function")
    if inspect.iscoroutinefunction(bare) or inspect.isasyncgenfunction(bare):
        raise UsageError(
            f"{what}: {_name_of(function)} is an async function; handlers and middleware run on"
            " threads and have to be plain functions"
        )
    if inspect.isgeneratorfunction(bare):
        raise UsageError(
            f"{what}: {_name_of(function)} is a generator function: calling it would run nothing"
        )
    return function


def checked_condition(when: object, what: str) -> When:
    """Return a condition that can be asked; UsageError for one that could not, or always holds."""
    if isinstance(when, Condition):
        return when
    if isinstance(when, str):
        raise UsageError(
            f"{what}: when={when!r} is a text: write header('x') == 'y' without quotes around it,"
            " or write the text into the configuration, below routes"
        )
    if not callable(when):
        raise UsageError(
            f"{what}: when={when!r} is no condition: it has to be one such as header('x') == 'y',"
            " or a function of the record"
        )
    return checked(when, f"{what}, when")


def _name_of(function: Callable[..., Any]) -> str:
    return getattr(function, "__qualname__", repr(function))


def with_middleware(handler: Handler, middleware: Sequence[Middleware]) -> Handler:
    """Wrap a handler; the middleware that was registered first is the outermost."""
    for layer in reversed(middleware):
        handler = _wrap(layer, handler)
    return handler


def _wrap(layer: Middleware, call_next: Handler) -> Handler:
    def call(record: Record) -> object:
        return layer(record, call_next)

    return call


def as_context(lifespan: Lifespan | None) -> AbstractContextManager[Any]:
    """Return a context manager of the lifespan; one that yields None where there is none."""
    if lifespan is None:
        return contextlib.nullcontext()
    if inspect.isgeneratorfunction(lifespan):
        return contextlib.contextmanager(lifespan)()
    context: Any = lifespan()
    if not isinstance(context, AbstractContextManager):
        raise UsageError(
            f"@app.lifespan: {_name_of(lifespan)} has to be a function with one yield, or to"
            f" return a context manager; it returned {type(context).__name__}"
        )
    return context
