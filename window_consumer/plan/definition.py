"""The definition of an application: what its decorators have collected, and how it is called."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any, Final

from window_consumer.config import TopicsConfig
from window_consumer.model.conditions.lookup import WallMs
from window_consumer.model.log_events import Warn
from window_consumer.plan.app_plan import AppPlan, PlannedWorker
from window_consumer.plan.calls import (
    batch_handler_of,
    handler_of,
    refuse_batch_mixture,
    refuse_mixture,
    refuse_mixtures,
    refuse_once,
)
from window_consumer.plan.feature_list import FeatureList
from window_consumer.plan.handlers import (
    Handler,
    HandlerSpec,
    Layer,
    with_batch_middleware,
    with_middleware,
)
from window_consumer.plan.lifespans import (
    Lifespan,
    Run,
    as_context,
    entered_alone,
    entered_by,
    is_async_lifespan,
)
from window_consumer.plan.planning import make_plan
from window_consumer.plan.preflight import Prepared, prepare
from window_consumer.plan.start_timeout import StartTimeout
from window_consumer.runtime.calls.batch_calls import BatchHandler
from window_consumer.runtime.error_report import Redact

Token = tuple[str, float]
"""A token and its expiry, in seconds since 1970."""


NO_FEATURES: Final = FeatureList()


class AppDefinition:
    """The part of an ``App`` that features need, without decorators and start."""

    def __init__(self, name: str, *, version: str = "", features: FeatureList = NO_FEATURES):
        self.name = name
        self.features = features
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

    @property
    def token_function(self) -> Callable[[str], Token] | None:
        """The function decorated with ``oauth_token``, None without one."""
        return self._oauth_token

    @property
    def redactor(self) -> Redact | None:
        """The function decorated with ``redact``, None without one."""
        return self._redact

    def plan(
        self,
        config: str | Path,
        *,
        only: Sequence[str] = (),
        overrides: Sequence[str] = (),
        for_cluster: bool = False,
    ) -> AppPlan:
        """Check everything that can be checked without a cluster; raise ConfigError.

        ``for_cluster`` also requires the brokers' addresses, which a test or a simulation does not
        need. Raises UsageError if middleware cannot wrap its handlers.
        """
        plan = make_plan(
            config=Path(config),
            handlers=self._handlers,
            only=only,
            overrides=overrides,
            for_cluster=for_cluster,
        )
        refuse_mixtures(plan.workers, self._middleware)
        refuse_once(plan.workers)
        return plan

    def prepare(
        self,
        plan: AppPlan,
        *,
        start_timeout: float | None = None,
        stop_asked: Callable[[], bool] = lambda: False,
        dry: bool = False,
    ) -> Prepared:
        """Query the cluster for everything needed before the first record, see ``prepare``.

        Creates missing dead-letter topics, except in a ``dry`` run, which changes nothing.
        """
        return prepare(plan, self._oauth_token, StartTimeout(start_timeout, stop_asked), dry=dry)

    def surrounded(self, handler: Handler, *, coroutines: bool = False) -> Handler:
        """Return a handler wrapped in the application's middleware, as workers call it.

        Raises UsageError for middleware that cannot wrap a handler of that kind.
        """
        refuse_mixture("this application", self._middleware, coroutines=coroutines)
        return with_middleware(handler, self._middleware, coroutines=coroutines)

    def batch_surrounded(self, handler: BatchHandler, *, coroutines: bool = False) -> BatchHandler:
        """Return a batch handler wrapped in the application's middleware for batches."""
        refuse_batch_mixture("this application", self._middleware, coroutines=coroutines)
        return with_batch_middleware(handler, self._middleware)

    def calls_of(
        self, worker: PlannedWorker, topics: TopicsConfig, wall_ms: WallMs, warn: Warn
    ) -> Handler | BatchHandler:
        """Return what a slot calls, see ``handler_of`` and ``batch_handler_of``.

        It needs no whole plan, because child processes have none.
        """
        make = batch_handler_of if worker.is_batch else handler_of
        return make(worker, self._middleware, topics, wall_ms, warn)

    def resources(self, run: Run | None = None) -> AbstractContextManager[Any]:
        """Return the lifespan, not entered. It yields ``record.state``, None without a lifespan.

        ``run`` runs coroutines on the handlers' loop, for an asynchronous lifespan. Raises
        UsageError if the decorated function returns no context manager.
        """
        if run is not None and self._lifespan is not None and is_async_lifespan(self._lifespan):
            return entered_by(run, self._lifespan)
        return as_context(self._lifespan)

    @property
    def layers(self) -> Sequence[Layer]:
        """The middleware, outermost first."""
        return tuple(self._middleware)

    @property
    def lifespan_function(self) -> Lifespan | None:
        """The function decorated with ``lifespan``, None without one."""
        return self._lifespan

    @property
    def surroundings(self) -> tuple[str, ...]:
        """The names of the lifespan and of the middleware, outermost first."""
        lifespan = () if self._lifespan is None else (self._lifespan,)
        functions = (*lifespan, *(layer.function for layer in self._middleware))
        return tuple(getattr(each, "__qualname__", type(each).__name__) for each in functions)

    def resources_of_child(self) -> AbstractContextManager[Any]:
        """Return the lifespan for a child process, see ``resources``."""
        if self._lifespan is not None and is_async_lifespan(self._lifespan):
            return entered_alone(self._lifespan)
        return as_context(self._lifespan)

    def handler_of(
        self,
        plan: AppPlan,
        worker: PlannedWorker,
        wall_ms: WallMs,
        warn: Warn = lambda _event, _text: None,
    ) -> Handler:
        """Return what is called for a worker's records: its routes, middleware and handlers.

        ``wall_ms`` is the time for expiry, in milliseconds since 1970.
        """
        return handler_of(worker, self._middleware, plan.config.topics, wall_ms, warn)

    def batch_handler_of(
        self,
        plan: AppPlan,
        worker: PlannedWorker,
        wall_ms: WallMs,
        warn: Warn = lambda _event, _text: None,
    ) -> BatchHandler:
        """Return what is called for the batches of a worker, see ``handler_of``."""
        return batch_handler_of(worker, self._middleware, plan.config.topics, wall_ms, warn)
