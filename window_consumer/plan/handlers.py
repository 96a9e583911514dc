"""Decorated functions: handlers with defaults and routes, middleware, the lifespan."""

from __future__ import annotations

import inspect
import itertools
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, Protocol, TypeVar

from attrs import field, frozen

from window_consumer.config import LoadedConfig, WorkerConfig
from window_consumer.engine.retry.copy_record import TargetOf
from window_consumer.engine.turn import TurnRule
from window_consumer.model.conditions import Condition
from window_consumer.model.errors import ConfigError, UsageError
from window_consumer.model.record import Record
from window_consumer.plan.handler_types.parameters import Parameters
from window_consumer.runtime.calls.layer import CallForm, CallLayer, CallTools
from window_consumer.runtime.calls.steps import Called
from window_consumer.runtime.pools.registry import kind_for

F = TypeVar("F", bound=Callable[..., object])
Handler = Callable[[Record], object]
AsyncHandler = Callable[[Record], Awaitable[object]]
When = Condition | Callable[[Record], object]
"""A condition on a record, or a predicate."""


class Transactional(Protocol):
    """The interface of ``Once`` that the application needs, without importing SQLAlchemy."""

    def layer_of(
        self,
        worker: WorkerConfig,
        handlers: Mapping[str, Callable[..., object]],
        shared: dict[Any, Any],
        *,
        has_children: bool,
    ) -> CallLayer:
        """Return the layer of transactions around those handlers of a worker that use it.

        All layers of a worker get the same ``shared``.
        """

    def keep_s(self, worker: WorkerConfig) -> float:
        """Return how long the database remembers an id."""

    def close_loops(self) -> None:
        """Close the connections of further event loops, once these have ended."""


@frozen
class HandlerSpec:
    """A decorated function and its decorator's arguments."""

    name: str
    function: Callable[..., object]
    defaults: Mapping[str, Any]
    """Raw defaults for a worker's keys, which the configuration overrides."""
    when: When | None = None
    """Selects its records; None accepts all."""
    parameters: Parameters = field(factory=Parameters)
    """The function's parameters."""
    once: Transactional | None = None
    """Calls run in its transactions."""
    rule_of: Callable[[TargetOf], TurnRule] | None = None
    """Creates the rule for the records of a built-in worker."""
    made_with: Callable[[CallTools], Called] | None = None
    """Creates a replacement of ``function`` for each worker, with the same signature."""

    @property
    def is_batch(self) -> bool:
        """Whether it gets lists of records."""
        return self.parameters.batches

    @property
    def form(self) -> CallForm:
        """The form of its calls."""
        return CallForm(batches=self.is_batch, coroutines=self.is_async)

    @property
    def call(self) -> Handler:
        """A callable that takes only a record: the function itself if it takes nothing else.

        For a batch handler, the record goes into a list of one.
        """
        call = self.parameters.called_with(self.function, self.form)
        return (lambda record: call([record])) if self.is_batch else call

    @property
    def is_async(self) -> bool:
        """Whether it is a coroutine function, which runs on an event loop."""
        return is_async(self.function)

    @property
    def place(self) -> str:
        """The function's file and line, for messages."""
        return place_of(self.function)


def is_async(function: object) -> bool:
    """Return whether a call returns a coroutine, judging also by the function that it wraps."""
    bare: Any = inspect.unwrap(function) if callable(function) else function
    call = getattr(type(bare), "__call__", None)  # noqa: B004 - the method itself is needed
    return any(inspect.iscoroutinefunction(each) for each in (function, bare, call))


def checked_topics(topics: Sequence[object], what: str) -> list[str]:
    """Return the names of topics; raise UsageError for lists, and without parentheses."""
    for topic in topics:
        if isinstance(topic, str):
            continue
        if callable(topic):
            raise UsageError(
                f"{place_of(topic)}: {what} is used without parentheses: write"
                f' {what}("orders"), or {what}() where the configuration names the topics'
            )
        raise UsageError(
            f'{what}: topics are separate texts, as in {what}("orders", "refunds");'
            f" {topic!r} is not one"
        )
    return [str(topic) for topic in topics]


def place_of(function: object) -> str:
    """Return a function's file and line, for messages."""
    bare = inspect.unwrap(function) if callable(function) else function
    code = getattr(bare, "__code__", None)
    return f"{code.co_filename}:{code.co_firstlineno}" if code else repr(function)


def name_of(function: object, what: str) -> str:
    """Return the name that a function gives its handler; UsageError for an unnamed callable."""
    name = getattr(function, "__name__", None)
    if not isinstance(name, str):
        raise UsageError(f"{what}: {function!r} has no name; give it one with name=...")
    return name


def checked(function: F, what: str, *, may_be_async: bool = True) -> F:
    """Return a function that can be called or awaited; raise UsageError for others.

    Calling a generator function only creates an object: the record would count as done although
    nothing ran.
    """
    if not callable(function):
        raise UsageError(f"{what}: {function!r} is not a function")
    bare = inspect.unwrap(function)
    if is_async(function) and not may_be_async:
        raise UsageError(
            f"{what}: {qualname_of(function)} is an async function; a plain function is needed"
        )
    if inspect.isgeneratorfunction(bare) or inspect.isasyncgenfunction(bare):
        raise UsageError(
            f"{what}: {qualname_of(function)} is a generator function: calling it would run nothing"
        )
    refuse_unbound_method(function, what)
    return function


def refuse_unbound_method(function: Callable[..., object], what: str) -> None:
    """Raise UsageError for a function of a class body that expects its object first."""
    if inspect.ismethod(function) or not inspect.isfunction(inspect.unwrap(function)):
        return
    first = next(iter(_parameters_of(function) or ()), None)
    around = qualname_of(function).rpartition(".")[0]
    if first in _OBJECTS and around and not around.endswith("<locals>"):
        raise UsageError(
            f"{place_of(function)}: {what}: {qualname_of(function)} is a method without an object"
            f" for its {first!r}: decorate a function, or register the method of an object, as in"
            ' app.handler("orders")(shop.charge)'
        )


def expect_arguments(function: Callable[..., object], what: str, *names: str) -> None:
    """Raise UsageError if a function cannot be called with these positional arguments."""
    try:
        signature = inspect.signature(function)
    except (TypeError, ValueError):
        return  # written in C, or hidden
    try:
        signature.bind(*names)
    except TypeError:
        raise UsageError(
            f"{place_of(function)}: {what}: {qualname_of(function)} is called with"
            f" ({', '.join(names)}), but takes {signature!s}"
        ) from None


def _parameters_of(function: Callable[..., object]) -> list[str] | None:
    """Return the names of a function's parameters; None where they are unknown."""
    try:
        return list(inspect.signature(function).parameters)
    except (TypeError, ValueError):
        return None


_OBJECTS = ("self", "cls")


def checked_condition(when: object, what: str) -> When:
    """Return a usable condition; raise UsageError for one that fails, or always holds."""
    if isinstance(when, Condition):
        return when
    if isinstance(when, str):
        raise UsageError(
            f"{what}: when={when!r} is a text: write header('x') == 'y' without quotes around it,"
            " or write the text in the configuration, below routes"
        )
    if not callable(when):
        raise UsageError(
            f"{what}: when={when!r} is not a condition: write one such as header('x') == 'y',"
            " or a function of the record"
        )
    function = checked(when, f"{what}, when", may_be_async=False)
    expect_arguments(function, f"{what}, when", "record")
    return function


def qualname_of(function: Callable[..., Any]) -> str:
    """Return a function's qualified name, for messages."""
    return getattr(function, "__qualname__", repr(function))


@frozen
class PlannedRoute:
    """A handler of a worker and the records that it accepts; None accepts all."""

    handler: HandlerSpec
    when: When | None

    @property
    def in_words(self) -> str:
        """Describe its records in the configuration's syntax."""
        if isinstance(self.when, Condition):
            return f"{self.handler.name} where {self.when}"
        if self.when is None:
            return self.handler.name
        return f"{self.handler.name} where {getattr(self.when, '__qualname__', self.when)}(record)"


def planned_routes(
    loaded: LoadedConfig, worker: WorkerConfig, handlers: Mapping[str, HandlerSpec]
) -> tuple[PlannedRoute, ...]:
    """Pair each handler with its condition; the configuration's replaces the decorator's."""
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
                f" {route.handler.name} before it takes every record; list that one last, or give"
                " it a condition, with when= or below routes"
            )
    kinds = {route.handler.is_async: route.handler.name for route in routes}
    if len(kinds) > 1:
        where = loaded.where(("workers", worker.name, "handler"))
        raise ConfigError(
            f"{where}: workers.{worker.name}.handler: {kinds[True]} is a coroutine and"
            f" {kinds[False]} a plain function: one worker runs its handlers either on an event"
            " loop or on threads; write both the same way, or give each kind its own worker"
        )
    first = routes[0].handler
    if kind_for(worker.pool, coroutines=first.is_async) is None:
        where = loaded.where(("workers", worker.name, "pool"))
        raise ConfigError(
            f"{where}: workers.{worker.name}.pool is {worker.pool}, but {first.name} is a"
            " coroutine, which runs on an event loop: write it as a plain function, or remove"
            " pool"
        )
    return tuple(routes)
