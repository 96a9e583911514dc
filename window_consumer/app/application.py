"""The application object: decorators, the keys that they take, and ``start``."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any, Literal, TypedDict, TypeVar, Unpack, overload

from window_consumer.app.batch_parameters import batch_parameters_of
from window_consumer.app.calls import (
    batch_handler_of,
    handler_of,
    refuse_batch_mixture,
    refuse_mixture,
    refuse_mixtures,
)
from window_consumer.app.child_spec import Blueprint, blueprint_of
from window_consumer.app.handlers import (
    Around,
    Handler,
    HandlerSpec,
    Layer,
    Middleware,
    When,
    checked,
    checked_condition,
    checked_topics,
    expect_arguments,
    name_of,
    refuse_unbound_method,
    with_batch_middleware,
    with_middleware,
)
from window_consumer.app.lifespans import (
    Lifespan,
    Run,
    as_context,
    entered_alone,
    entered_by,
    is_async_lifespan,
    refuse_what_opens_nothing,
)
from window_consumer.app.parameters import parameters_of
from window_consumer.app.plan import Plan, PlannedWorker, make_plan
from window_consumer.app.preflight import Prepared, PreparedWorker, prepare
from window_consumer.app.start_timeout import Patience
from window_consumer.app.startup import start
from window_consumer.app.wiring import setup_of
from window_consumer.config import TopicsConfig
from window_consumer.model.conditions.lookup import WallMs
from window_consumer.model.errors import UsageError
from window_consumer.model.protocols import Clock
from window_consumer.runtime.calls.batch_calls import BatchHandler
from window_consumer.runtime.calls.expiry import Warn
from window_consumer.runtime.error_report import Redact
from window_consumer.runtime.replica import CopyOfMany
from window_consumer.runtime.running import Running
from window_consumer.runtime.worker import WorkerSetup


class WorkerKeys(TypedDict, total=False):
    """Defaults for a worker, with the names, units and meaning of the configuration's keys.

    ``fatal`` and ``retryable`` stand for those below ``retry``.
    """

    patterns: Sequence[str]
    group: str
    ordering: Literal["unordered", "key", "partition"]
    concurrency: int | Literal["auto"] | Mapping[str, str]
    rate_per_process: str | Mapping[str, Any]
    pool: Literal["threads", "processes"]
    memory: str
    window: Mapping[str, int]
    commit_interval: str
    revoke_timeout: str
    stop_timeout: str
    retry: Mapping[str, Any]
    fatal: Sequence[type[BaseException] | str]
    retryable: Sequence[type[BaseException] | str]
    otherwise: Literal["dead_letter", "skip", "stop"]
    ttl: str | Mapping[str, str]
    on_expired: Literal["dead_letter", "drop"]
    breaker: Mapping[str, Any]
    stall: Mapping[str, Any]
    on_no_offset: Literal["earliest", "latest", "fail"]
    on_out_of_range: Literal["fail", "earliest", "latest"]
    kafka: Mapping[str, Any]


Token = tuple[str, float]
"""A token and when it expires, in seconds since 1970."""

# Type checkers refuse functions of another form, and see the decorated ones as what they are.
HandlerT = TypeVar("HandlerT", bound=Callable[[Any], object] | Callable[[Any, Any], object])
BatchHandlerT = TypeVar(
    "BatchHandlerT", bound=Callable[[list[Any]], object] | Callable[[list[Any], list[Any]], object]
)
MiddlewareT = TypeVar("MiddlewareT", bound=Middleware)
LifespanT = TypeVar("LifespanT", bound=Lifespan)
TokenT = TypeVar("TokenT", bound=Callable[[str], Token])
RedactT = TypeVar("RedactT", bound=Callable[[str], str])


class App:
    """A named set of handlers and what surrounds their calls.

    ``version`` is written into the headers of dead-letter copies, so that one can see which
    version of the application failed.
    """

    def __init__(self, name: str, *, version: str = ""):
        self.name = name
        self.version = version
        self._handlers: dict[str, HandlerSpec] = {}
        self._middleware: list[Layer] = []
        self._lifespan: Lifespan | None = None
        self._oauth_token: Callable[[str], Token] | None = None
        self._redact: Redact | None = None

    @property
    def handlers(self) -> Mapping[str, HandlerSpec]:
        """The decorated functions by name."""
        return self._handlers

    def handler(  # noqa: PLR0913 - the keys of a worker, so that editors know them
        self,
        *topics: str,
        name: str | None = None,
        when: When | None = None,
        value: Callable[[bytes], object] | None = None,
        patterns: Sequence[str] | None = None,
        group: str | None = None,
        ordering: Literal["unordered", "key", "partition"] | None = None,
        concurrency: int | Literal["auto"] | Mapping[str, str] | None = None,
        pool: Literal["threads", "processes"] | None = None,
        rate_per_process: str | Mapping[str, Any] | None = None,
        memory: str | None = None,
        window: Mapping[str, int] | None = None,
        commit_interval: str | None = None,
        revoke_timeout: str | None = None,
        stop_timeout: str | None = None,
        retry: Mapping[str, Any] | None = None,
        fatal: Sequence[type[BaseException] | str] | None = None,
        retryable: Sequence[type[BaseException] | str] | None = None,
        otherwise: Literal["dead_letter", "skip", "stop"] | None = None,
        ttl: str | Mapping[str, str] | None = None,
        on_expired: Literal["dead_letter", "drop"] | None = None,
        breaker: Mapping[str, Any] | None = None,
        stall: Mapping[str, Any] | None = None,
        on_no_offset: Literal["earliest", "latest", "fail"] | None = None,
        on_out_of_range: Literal["fail", "earliest", "latest"] | None = None,
        kafka: Mapping[str, Any] | None = None,
    ) -> Callable[[HandlerT], HandlerT]:
        """Register a function ``def f(record: Record) -> None`` as a handler.

        ``async def f(record: Record) -> None`` runs on the worker's event loop, up to
        ``concurrency`` calls at once.

        It may take the value as well, or alone: ``def f(order: Order, record: Record)``. What it is
        made into follows from the annotation (an attrs class, dataclass, TypedDict, msgspec Struct,
        pydantic model), from JSON; ``value`` names another decoder, a function of bytes or a
        deserialiser of ``confluent_kafka``. What cannot be decoded becomes a dead letter at once,
        with reason DECODE.

        ``when`` says for which records it is, where a worker runs several handlers: a condition
        such as ``header("type") == "paid"``, or a function that tells by its truth. The other
        arguments are defaults for a worker that runs it, with the names, units and meaning of
        the configuration's keys; ``fatal`` and ``retryable`` stand for those below ``retry``. The
        YAML wins. The function itself stays an ordinary function. Raises UsageError for a name
        that is taken, for generators, and for annotations that nothing can be decoded into.
        """
        retries = {**(retry or {})}
        if fatal is not None:
            retries["fatal"] = list(fatal)
        if retryable is not None:
            retries["retryable"] = list(retryable)
        given = {
            "topics": checked_topics(topics, "@app.handler") or None,
            "patterns": None if patterns is None else list(patterns),
            "group": group,
            "ordering": ordering,
            "concurrency": concurrency,
            "pool": pool,
            "rate_per_process": rate_per_process,
            "memory": memory,
            "window": window,
            "commit_interval": commit_interval,
            "revoke_timeout": revoke_timeout,
            "stop_timeout": stop_timeout,
            "retry": retries or None,
            "otherwise": otherwise,
            "ttl": ttl,
            "on_expired": on_expired,
            "breaker": breaker,
            "stall": stall,
            "on_no_offset": on_no_offset,
            "on_out_of_range": on_out_of_range,
            "kafka": kafka,
        }
        defaults = {key: value for key, value in given.items() if value is not None}

        def register(function: HandlerT) -> HandlerT:
            known = name or name_of(function, "@app.handler")
            what = f"@app.handler {known}"
            condition = None if when is None else checked_condition(when, what)
            plain = checked(function, what)
            parameters = parameters_of(plain, value, what)
            self._add(HandlerSpec(known, plain, defaults, condition, parameters))
            return function

        return register

    def batch_handler(
        self,
        *topics: str,
        max_records: int | None = None,
        min_records: int | None = None,
        max_wait: str | None = None,
        name: str | None = None,
        when: When | None = None,
        value: Callable[[bytes], object] | None = None,
        **keys: Unpack[WorkerKeys],
    ) -> Callable[[BatchHandlerT], BatchHandlerT]:
        """Register a function ``def f(records: list[Record]) -> None`` as a batch handler.

        It gets records of one partition in offset order, at most ``max_records`` of them. A batch
        goes out when it is full, when it holds ``min_records`` and nothing more is there, or when
        its first record has waited for ``max_wait``; they are the keys of ``batch`` in the
        configuration. It may raise PartialFailure to name the records that failed; whatever else
        it raises holds for all of them.

        It may take the values as well, or alone: ``def f(orders: list[Order], records:
        list[Record])``. Everything else is as for ``handler``.
        """
        batch = {"max_records": max_records, "min_records": min_records, "max_wait": max_wait}
        given: dict[str, Any] = {**keys}
        retries = {**given.pop("retry", {})}
        retries |= {each: given.pop(each) for each in ("fatal", "retryable") if each in given}
        given |= {
            "topics": checked_topics(topics, "@app.batch_handler") or None,
            "batch": batch,
            "retry": retries or None,
        }
        defaults = {key: value for key, value in given.items() if value is not None}

        def register(function: BatchHandlerT) -> BatchHandlerT:
            known = name or name_of(function, "@app.batch_handler")
            what = f"@app.batch_handler {known}"
            condition = None if when is None else checked_condition(when, what)
            plain = checked(function, what)
            parameters = batch_parameters_of(plain, value, what)
            self._add(HandlerSpec(known, plain, defaults, condition, parameters))
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

        It has to call ``call_next(record)`` for the handler to run; what it raises counts as
        the handler's. Handlers that are coroutines need ``async def m(record, call_next)``, with
        ``await call_next(record)``. An application with both kinds of handlers has middleware for
        each: ``@app.middleware(around="functions")`` and ``@app.middleware(around="coroutines")``.

        Batch handlers have their own, which gets the list: ``@app.middleware(around="batches")``
        over ``def m(records, call_next)``.
        """

        def register(function: MiddlewareT) -> MiddlewareT:
            layer = Layer(checked(function, "@app.middleware"), around)
            given = "records" if around == "batches" else "record"
            expect_arguments(function, "@app.middleware", given, "call_next")
            self._middleware.append(layer)
            return function

        return register if function is None else register(function)

    def lifespan(self, function: LifespanT) -> LifespanT:
        """Enter a context once per process where handlers run: pools, clients, caches.

        A generator function with one ``yield``, or a function that returns a context manager.
        What it yields is ``record.state``. It is left after the workers have drained and
        committed, before they leave their groups, on the thread that entered it.

        An asynchronous one (``async def`` with one ``yield``, or a function that returns an
        asynchronous context manager) is entered on the event loop of each worker with coroutines,
        and once more for all other workers, on a loop of its own.
        """
        if self._lifespan is not None:
            raise UsageError("@app.lifespan: there is a lifespan already")
        refuse_unbound_method(function, "@app.lifespan")
        refuse_what_opens_nothing(function)
        self._lifespan = function
        return function

    def oauth_token(self, function: TokenT) -> TokenT:
        """Supply OAUTHBEARER tokens to all clients: ``def token(config: str) -> (token, expiry)``.

        ``config`` is sasl.oauthbearer.config, ``expiry`` is in seconds since 1970. Called by the
        clients' threads whenever a token is about to expire.
        """
        if self._oauth_token is not None:
            raise UsageError("@app.oauth_token: there is one already")
        expect_arguments(function, "@app.oauth_token", "config")
        self._oauth_token = function
        return function

    @property
    def token_function(self) -> Callable[[str], Token] | None:
        """What ``oauth_token`` has decorated, None where nothing is."""
        return self._oauth_token

    def redact(self, function: RedactT) -> RedactT:
        """Take what is confidential out of the texts of exceptions.

        ``def redact(text: str) -> str`` gets the text of each exception that a handler raises,
        before it is logged, written to a header or shown anywhere. Called on the handlers'
        threads, and in their child processes. Where it raises the text is withheld. With
        ``errors: {message: class}`` no text is told, and it is not called.
        """
        if self._redact is not None:
            raise UsageError("@app.redact: there is one already")
        expect_arguments(function, "@app.redact", "text")
        self._redact = function
        return function

    @property
    def redactor(self) -> Redact | None:
        """What ``redact`` has decorated, None where nothing is."""
        return self._redact

    def plan(
        self,
        config: str | Path,
        *,
        only: Sequence[str] = (),
        overrides: Sequence[str] = (),
        for_cluster: bool = False,
    ) -> Plan:
        """Check everything that can be checked without a cluster; raises ConfigError.

        ``for_cluster`` demands the brokers' addresses, too, which a test or a simulation can do
        without.
        Raises UsageError where middleware cannot surround the handlers that it is for.
        """
        plan = make_plan(
            config=Path(config),
            handlers=self._handlers,
            only=only,
            overrides=overrides,
            for_cluster=for_cluster,
        )
        refuse_mixtures(plan.workers, self._middleware)
        return plan

    def start(
        self,
        config: str | Path,
        *,
        only: Sequence[str] = (),
        overrides: Sequence[str] = (),
        start_timeout: float | None = None,
    ) -> Running:
        """Start the workers of a configuration and return at once.

        ``only`` names the workers to run, all that are enabled by default; ``overrides`` are
        texts like ``workers.charge.concurrency=8``. Waits for a broker for ``start_timeout``
        seconds, for ever by default. Use the result as a context manager, or call its ``stop``
        and ``wait``. Installs no signal handlers, no logging, and changes no setting of the
        interpreter.

        Raises ConfigError and other UsageErrors before anything runs, AuthenticationError and
        BrokerUnavailableError when the cluster cannot be used, LifespanError when the lifespan
        fails.
        """
        plan = self.plan(config, only=only, overrides=overrides, for_cluster=True)
        return self.start_plan(plan, start_timeout=start_timeout)

    def start_plan(
        self,
        plan: Plan,
        *,
        start_timeout: float | None = None,
        stop_asked: Callable[[], bool] = lambda: False,
        copy: CopyOfMany | None = None,
    ) -> Running:
        """Start what ``plan`` has checked, see ``start_offset``.

        While it waits for a broker it asks ``stop_asked`` about once a second, and raises
        StartStoppedError when that says so. Probes get answers from the beginning to the end. A
        ``copy`` is not asked by them, but by whoever keeps the copies.
        """
        return start(self, plan, start_timeout=start_timeout, stop_asked=stop_asked, copy=copy)

    def blueprints(self, plan: Plan) -> Mapping[str, Blueprint]:
        """Return what the children of workers with ``pool: processes`` are made of, by worker.

        Raises UsageError where child processes could not import the application.
        """
        return {
            worker.name: blueprint_of(self, plan, worker)
            for worker in plan.workers
            if worker.config.pool == "processes"
        }

    def prepare(
        self,
        plan: Plan,
        *,
        start_timeout: float | None = None,
        stop_asked: Callable[[], bool] = lambda: False,
        dry: bool = False,
    ) -> Prepared:
        """Ask the cluster what has to be known before the first record, see ``start_offset``.

        A ``dry`` run changes nothing; without it missing dead-letter topics are made.
        """
        return prepare(plan, self._oauth_token, Patience(start_timeout, stop_asked), dry=dry)

    def surrounded(self, handler: Handler, *, coroutines: bool = False) -> Handler:
        """Return a handler within the application's middleware, the way that workers call it.

        Raises UsageError for middleware that cannot surround a handler of that kind.
        """
        refuse_mixture("this application", self._middleware, coroutines=coroutines)
        return with_middleware(handler, self._middleware, coroutines=coroutines)

    def batch_surrounded(self, handler: BatchHandler, *, coroutines: bool = False) -> BatchHandler:
        """Return a batch handler within the application's middleware for batches."""
        refuse_batch_mixture("this application", self._middleware, coroutines=coroutines)
        return with_batch_middleware(handler, self._middleware)

    def calls_of(
        self, worker: PlannedWorker, topics: TopicsConfig, wall_ms: WallMs, warn: Warn
    ) -> Handler | BatchHandler:
        """Return what a slot calls, see ``handler_of`` and ``batch_handler_of``.

        It needs no whole plan: a child process has none.
        """
        make = batch_handler_of if worker.is_batch else handler_of
        return make(worker, self._middleware, topics, wall_ms, warn)

    def resources(self, run: Run | None = None) -> AbstractContextManager[Any]:
        """Return the lifespan, not entered: what it yields is ``record.state``, None without one.

        ``run`` runs coroutines on the loop on which handlers run, for an asynchronous lifespan.
        Raises UsageError where the decorated function gives no context manager.
        """
        if run is not None and self._lifespan is not None and is_async_lifespan(self._lifespan):
            return entered_by(run, self._lifespan)
        return as_context(self._lifespan)

    @property
    def layers(self) -> Sequence[Layer]:
        """Its middleware, from the outside in."""
        return tuple(self._middleware)

    @property
    def lifespan_function(self) -> Lifespan | None:
        """What ``lifespan`` has decorated, None where nothing is."""
        return self._lifespan

    @property
    def surroundings(self) -> tuple[str, ...]:
        """The names of its lifespan and of its middleware, from the outside in."""
        lifespan = () if self._lifespan is None else (self._lifespan,)
        functions = (*lifespan, *(layer.function for layer in self._middleware))
        return tuple(getattr(each, "__qualname__", type(each).__name__) for each in functions)

    def resources_of_child(self) -> AbstractContextManager[Any]:
        """Return the lifespan for a child process, see ``resources``."""
        if self._lifespan is not None and is_async_lifespan(self._lifespan):
            return entered_alone(self._lifespan)
        return as_context(self._lifespan)

    def handler_of(
        self, plan: Plan, worker: PlannedWorker, wall_ms: WallMs, warn: Warn = lambda _text: None
    ) -> Handler:
        """Return what is called for a worker's records: its routes, its middleware, its handlers.

        ``wall_ms`` is the time by which records expire, in milliseconds since 1970.
        """
        return handler_of(worker, self._middleware, plan.config.topics, wall_ms, warn)

    def batch_handler_of(
        self, plan: Plan, worker: PlannedWorker, wall_ms: WallMs, warn: Warn = lambda _text: None
    ) -> BatchHandler:
        """Return what is called for the batches of a worker, see ``handler_of``."""
        return batch_handler_of(worker, self._middleware, plan.config.topics, wall_ms, warn)

    def setup_of(
        self, plan: Plan, worker: PreparedWorker, clock: Clock | None = None
    ) -> WorkerSetup:
        """Return everything about a worker that is not a connection, middleware included.

        ``clock`` is that of the process unless another one is given.
        """
        return setup_of(self, plan, worker, clock)
