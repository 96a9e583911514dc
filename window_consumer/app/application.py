"""The application object: decorators, their arguments, and ``start``."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Any, TypeVar, Unpack, overload

from window_consumer.app.embedding import OnFailure, embedded
from window_consumer.app.features import FEATURES
from window_consumer.app.startup import start
from window_consumer.config.handler_keys import defaults_of
from window_consumer.config.handler_options import BatchHandlerOptions, HandlerOptions
from window_consumer.model.errors import UsageError
from window_consumer.plan.app_plan import AppPlan
from window_consumer.plan.definition import AppDefinition, Token
from window_consumer.plan.feature_list import FeatureList
from window_consumer.plan.handler_types.signature import batch_parameters_of, parameters_of
from window_consumer.plan.handlers import (
    HandlerSpec,
    Transactional,
    When,
    checked,
    checked_condition,
    checked_topics,
    expect_arguments,
    name_of,
    refuse_unbound_method,
)
from window_consumer.plan.lifespans import Lifespan, refuse_what_opens_nothing
from window_consumer.plan.middleware import Around, Middleware, MiddlewareSpec
from window_consumer.runtime.replica import ReplicaIdentity
from window_consumer.runtime.running import Running

# Type checkers refuse other signatures, and keep the types of decorated functions.
HandlerT = TypeVar("HandlerT", bound=Callable[[Any], object] | Callable[[Any, Any], object])
BatchHandlerT = TypeVar(
    "BatchHandlerT", bound=Callable[[list[Any]], object] | Callable[[list[Any], list[Any]], object]
)
MiddlewareT = TypeVar("MiddlewareT", bound=Middleware)
LifespanT = TypeVar("LifespanT", bound=Lifespan)
TokenT = TypeVar("TokenT", bound=Callable[[str], Token])
RedactT = TypeVar("RedactT", bound=Callable[[str], str])


class App(AppDefinition):
    """A named set of handlers with the layers around their calls.

    ``version`` goes into the headers of dead-letter copies, to show which version of the
    application failed. ``features`` is for tests; by default, all are used.
    """

    def __init__(self, name: str, *, version: str = "", features: FeatureList = FEATURES):
        super().__init__(name, version=version, features=features)

    def handler(
        self,
        *topics: str,
        name: str | None = None,
        when: When | None = None,
        value: Callable[[bytes], object] | None = None,
        once: Transactional | None = None,
        **keys: Unpack[HandlerOptions],
    ) -> Callable[[HandlerT], HandlerT]:
        """Register a function ``def f(record: Record) -> None`` as a handler.

        ``async def f(record: Record) -> None`` runs on the worker's event loop, up to
        ``concurrency`` calls at once.

        The function may take the value as well, or alone: ``def f(order: Order, record: Record)``.
        The annotation (an attrs class, dataclass, TypedDict, msgspec Struct, pydantic model)
        decides what the JSON value is decoded into. ``value`` names another decoder: a function of
        bytes, or a deserialiser of ``confluent_kafka``. A value that cannot be decoded becomes a
        dead letter at once, with reason DECODE.

        ``once`` makes it one transaction of a database, see ``window_consumer.database.Once``.

        ``when`` selects the handler's records where a worker runs several handlers: a condition
        such as ``header("type") == "paid"``, or a predicate. The other arguments are defaults for a
        worker that runs it, with the names, units and meaning of the configuration's keys;
        ``fatal`` and ``retryable`` correspond to those below ``retry``. The YAML file takes
        precedence. The function itself stays an ordinary function.
        Raises UsageError for a name that is taken, for generators, and for types that no value can
        be decoded into, TypeError for an unknown argument.
        """
        of_worker = checked_topics(topics, "@app.handler")
        defaults = defaults_of("handler", keys, of_worker, batches=False)

        def register(function: HandlerT) -> HandlerT:
            known = name or name_of(function, "@app.handler")
            what = f"@app.handler {known}"
            condition = None if when is None else checked_condition(when, what)
            plain = checked(function, what)
            parameters = parameters_of(plain, value, what)
            self._add(HandlerSpec(known, plain, defaults, condition, parameters, once))
            return function

        return register

    def batch_handler(
        self,
        *topics: str,
        name: str | None = None,
        when: When | None = None,
        value: Callable[[bytes], object] | None = None,
        once: Transactional | None = None,
        **keys: Unpack[BatchHandlerOptions],
    ) -> Callable[[BatchHandlerT], BatchHandlerT]:
        """Register a function ``def f(records: list[Record]) -> None`` as a batch handler.

        It gets records of one partition in offset order, at most ``max_records`` of them. A batch
        goes out when it is full, when it holds ``min_records`` and no more are available, or when
        its first record has waited for ``max_wait``: the keys of ``batch`` in the configuration.
        The function may raise PartialFailure to name the records that failed; any other exception
        fails all of them.

        It may take the values as well, or alone: ``def f(orders: list[Order], records:
        list[Record])``. Everything else is as for ``handler``.
        """
        of_worker = checked_topics(topics, "@app.batch_handler")
        defaults = defaults_of("batch_handler", keys, of_worker, batches=True)

        def register(function: BatchHandlerT) -> BatchHandlerT:
            known = name or name_of(function, "@app.batch_handler")
            what = f"@app.batch_handler {known}"
            condition = None if when is None else checked_condition(when, what)
            plain = checked(function, what)
            parameters = batch_parameters_of(plain, value, what)
            self._add(HandlerSpec(known, plain, defaults, condition, parameters, once))
            return function

        return register

    def _add(self, spec: HandlerSpec) -> None:
        other = self._handlers.get(spec.name)
        if other is not None:
            raise UsageError(
                f"@app.handler: there are two handlers named {spec.name!r}: {other.place} and"
                f" {spec.place}; give one of them name=..."
            )
        self._handlers[spec.name] = spec

    @overload
    def middleware(self, function: MiddlewareT) -> MiddlewareT: ...

    @overload
    def middleware(self, *, around: Around) -> Callable[[MiddlewareT], MiddlewareT]: ...

    def middleware(
        self, function: MiddlewareT | None = None, *, around: Around | None = None
    ) -> MiddlewareT | Callable[[MiddlewareT], MiddlewareT]:
        """Wrap every handler call with ``def m(record, call_next)``, first registered outermost.

        It must call ``call_next(record)`` for the handler to run; an exception of its own counts as
        the handler's. Coroutine handlers need ``async def m(record, call_next)``, with ``await
        call_next(record)``. An application with both kinds of handlers needs middleware for each:
        ``@app.middleware(around="functions")`` and ``@app.middleware(around="coroutines")``.

        Batch handlers have their own middleware, which gets the list:
        ``@app.middleware(around="batches")`` over ``def m(records, call_next)``.
        """

        def register(function: MiddlewareT) -> MiddlewareT:
            spec = MiddlewareSpec(checked(function, "@app.middleware"), around)
            argument = "records" if around == "batches" else "record"
            expect_arguments(function, "@app.middleware", argument, "call_next")
            self._middleware.append(spec)
            return function

        return register if function is None else register(function)

    def lifespan(self, function: LifespanT) -> LifespanT:
        """Enter a context once in each process that runs handlers: pools, clients, caches.

        Takes a generator function with one ``yield``, or a function that returns a context manager.
        The value that it yields is ``record.state``. It exits after the workers have drained and
        committed, before they leave their groups, on the thread that entered it.

        An asynchronous lifespan (``async def`` with one ``yield``, or a function that returns an
        asynchronous context manager) is entered on the event loop of each worker with coroutines,
        and once more for all other workers, on a separate loop.
        """
        if self._lifespan is not None:
            raise UsageError("@app.lifespan: there is a lifespan already")
        refuse_unbound_method(function, "@app.lifespan")
        refuse_what_opens_nothing(function)
        self._lifespan = function
        return function

    def oauth_token(self, function: TokenT) -> TokenT:
        """Supply OAUTHBEARER tokens to all clients: ``def token(config: str) -> (token, expiry)``.

        ``config`` is sasl.oauthbearer.config, ``expiry`` is in seconds since 1970. The clients'
        threads call it whenever a token is about to expire.
        """
        if self._oauth_token is not None:
            raise UsageError("@app.oauth_token: there is one already")
        expect_arguments(function, "@app.oauth_token", "config")
        self._oauth_token = function
        return function

    def redact(self, function: RedactT) -> RedactT:
        """Remove confidential parts from the texts of exceptions.

        ``def redact(text: str) -> str`` gets the text of each exception that a handler raises,
        before it is logged, written to a header or shown anywhere. It is called on the handlers'
        threads, and in their child processes. If it raises, the text is withheld. With ``errors:
        {message: class}`` no text is reported, and it is not called.
        """
        if self._redact is not None:
            raise UsageError("@app.redact: there is one already")
        expect_arguments(function, "@app.redact", "text")
        self._redact = function
        return function

    def start(
        self,
        config: str | Path,
        *,
        only: Sequence[str] = (),
        overrides: Sequence[str] = (),
        start_timeout: float | None = None,
    ) -> Running:
        """Start the workers of a configuration and return at once.

        ``only`` names the workers to run, by default all enabled ones; ``overrides`` are texts like
        ``workers.charge.concurrency=8``. Waits up to ``start_timeout`` seconds for a broker, by
        default forever. Use the result as a context manager, or call its ``stop`` and ``wait``.
        Installs no signal handlers and no logging, and changes no interpreter setting.

        Raises ConfigError and other UsageErrors before anything runs, AuthenticationError and
        BrokerUnavailableError if the cluster cannot be used, LifespanError if the lifespan fails.
        """
        plan = self.plan(config, only=only, overrides=overrides, for_cluster=True)
        return self.start_plan(plan, start_timeout=start_timeout)

    def running(
        self,
        config: str | Path,
        *,
        only: Sequence[str] = (),
        overrides: Sequence[str] = (),
        start_timeout: float | None = None,
        on_failure: OnFailure | None = None,
    ) -> AbstractAsyncContextManager[Running]:
        """Run the workers beside an ``async with`` block, in any event loop.

        The arguments and errors are those of ``start``. Start, drain and stop run on a separate
        thread, so the loop is not blocked. Leaving the block drains, commits and leaves the
        groups. If the application fails meanwhile, the block is cancelled and the failure raised;
        with ``on_failure``, the loop calls that with the failure instead, and the block raises the
        failure at its end.
        """

        def start_it(stop_asked: Callable[[], bool]) -> Running:
            plan = self.plan(config, only=only, overrides=overrides, for_cluster=True)
            return self.start_plan(plan, start_timeout=start_timeout, stop_asked=stop_asked)

        return embedded(start_it, on_failure)

    def start_plan(
        self,
        plan: AppPlan,
        *,
        start_timeout: float | None = None,
        stop_asked: Callable[[], bool] = lambda: False,
        replica: ReplicaIdentity | None = None,
    ) -> Running:
        """Start a checked plan, see ``start``.

        While it waits for a broker it polls ``stop_asked`` about once a second, and raises
        StartStoppedError once that returns True. Probes get answers the whole time. As a
        ``replica``, it answers its supervisor instead.
        """
        return start(
            self, plan, start_timeout=start_timeout, stop_asked=stop_asked, replica=replica
        )
