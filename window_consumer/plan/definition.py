"""The definition of an application: the functions that its decorators collect, and their calls."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any, Final

from attrs import evolve

from window_consumer.plan.app_plan import AppPlan, PlannedWorker
from window_consumer.plan.calls import call_of, layers_of, refuse_layers
from window_consumer.plan.feature_list import FeatureList
from window_consumer.plan.handlers import HandlerSpec
from window_consumer.plan.lifespans import (
    Lifespan,
    Run,
    as_context,
    entered_alone,
    entered_by,
    is_async_lifespan,
)
from window_consumer.plan.middleware import MiddlewareLayer, MiddlewareSpec
from window_consumer.plan.planning import make_plan
from window_consumer.plan.preflight import prepare
from window_consumer.plan.start_timeout import StartTimeout
from window_consumer.plan.topics.prepared_worker import Prepared
from window_consumer.runtime.calls.layer import CallForm, CallLayer, CallSite, CallTools
from window_consumer.runtime.calls.steps import Called
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
        self._middleware: list[MiddlewareSpec] = []
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

        ``for_cluster`` also requires the brokers' addresses; tests and simulations need none.
        Raises UsageError if a layer, such as middleware, cannot surround its handlers.
        """
        plan = make_plan(
            config=Path(config),
            handlers=self._handlers,
            only=only,
            overrides=overrides,
            for_cluster=for_cluster,
            features=self.features,
        )
        refuse_layers(plan.workers, self._middleware)
        return evolve(plan, version=self.version)

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

    def surrounded(self, call: Called, form: CallForm) -> Called:
        """Return a call of this form within the application's middleware, as workers make it.

        Raises UsageError for middleware that cannot surround it.
        """
        layer = MiddlewareLayer(self._middleware)
        layer.refuse(form)
        return layer.wrap(call, CallSite(form, CallTools(lambda _topic: False, lambda: 0)))

    def calls_of(
        self, worker: PlannedWorker, tools: CallTools, layers: Sequence[CallLayer] = ()
    ) -> Called:
        """Return the callable of a slot: handlers within the application's layers and these.

        It does not need a plan, which child processes lack.
        """
        return call_of(worker, [*layers_of(worker, self._middleware), *layers], tools)

    def resources(self, run: Run | None = None) -> AbstractContextManager[Any]:
        """Return the lifespan, not entered. It yields ``record.state``, None without a lifespan.

        ``run`` runs coroutines on the handlers' loop, for an asynchronous lifespan. Raises
        UsageError if the decorated function returns no context manager.
        """
        if run is not None and self._lifespan is not None and is_async_lifespan(self._lifespan):
            return entered_by(run, self._lifespan)
        return as_context(self._lifespan)

    @property
    def lifespan_function(self) -> Lifespan | None:
        """The function decorated with ``lifespan``, None without one."""
        return self._lifespan

    @property
    def surroundings(self) -> tuple[str, ...]:
        """The names of the lifespan and of the middleware, outermost first."""
        lifespan = () if self._lifespan is None else (self._lifespan,)
        functions = (*lifespan, *(each.function for each in self._middleware))
        return tuple(getattr(each, "__qualname__", type(each).__name__) for each in functions)

    def resources_of_child(self) -> AbstractContextManager[Any]:
        """Return the lifespan for a child process, see ``resources``."""
        if self._lifespan is not None and is_async_lifespan(self._lifespan):
            return entered_alone(self._lifespan)
        return as_context(self._lifespan)
