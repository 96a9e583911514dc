"""Builds a plan: merges and checks configuration and handlers, without a cluster."""

from __future__ import annotations

import builtins
import importlib
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from window_consumer.config import LoadedConfig, Mask, WorkerConfig, effective_kafka, load
from window_consumer.config.conflicts import HandlerTrait
from window_consumer.config.problems import InvalidError
from window_consumer.engine.commits.delivery_guarantee import DeliveryMode
from window_consumer.engine.retry.policy import RetryRules
from window_consumer.kafka import settings
from window_consumer.model.errors import ConfigError
from window_consumer.plan.app_plan import AppPlan, PlannedWorker
from window_consumer.plan.built_in_workers import with_levels
from window_consumer.plan.feature_list import FeatureList
from window_consumer.plan.handlers import HandlerSpec, planned_routes
from window_consumer.plan.kafka_properties import kafka_problems, missing_brokers
from window_consumer.plan.ladder_topics import levels_of


def check_batches(
    loaded: LoadedConfig, worker: WorkerConfig, handlers: Sequence[HandlerSpec]
) -> None:
    """Raise ConfigError for both kinds of handlers in one worker, and for endless batches."""
    batch = [each.name for each in handlers if each.is_batch]
    plain = [each.name for each in handlers if not each.is_batch]
    path = ("workers", worker.name)
    if batch and plain:
        raise ConfigError(
            f"{loaded.where((*path, 'handler'))}: workers.{worker.name}.handler: {batch[0]} is a"
            f" batch handler and {plain[0]} is not: one worker runs handlers of one kind; give"
            " each kind its own worker and group, or make both batch handlers"
        )
    records = worker.window.cells * worker.window.cell_records
    if batch and worker.batch.max_records > records:
        raise ConfigError(
            f"{loaded.where((*path, 'batch', 'max_records'))}: workers.{worker.name}.batch."
            f"max_records: is {worker.batch.max_records}, but a partition's window holds {records}"
            " records: no batch would ever be full; write less, or more window.cells or"
            " window.cell_records"
        )


def make_plan(
    *,
    config: Path,
    handlers: Mapping[str, HandlerSpec] | None,
    only: Sequence[str] = (),
    overrides: Sequence[str] = (),
    for_cluster: bool = False,
    features: FeatureList,
) -> AppPlan:
    """Load the configuration and find each worker's handler; ConfigError names all problems.

    ``for_cluster`` is for plans that will connect: it requires brokers. Without an application
    ``handlers`` is None, and the plan has only the workers that features add.
    """
    without_app = handlers is None
    handlers = handlers or {}
    defaults = {name: spec.defaults for name, spec in handlers.items()}
    loaded = load(
        config, defaults, overrides, sections=features.sections, only_built_in=without_app
    )
    of_features = features.handlers(loaded.config)
    mask = Mask(loaded.secrets)
    problems = [*_taken(loaded, handlers, of_features)]
    handlers = {**handlers, **of_features}
    problems.extend(_problems(loaded, handlers, only))
    if problems:
        raise ConfigError(mask("\n".join(problems)))
    chosen = [
        worker
        for name, worker in loaded.config.workers.items()
        if (name in only if only else worker.enabled)
    ]
    planned, problems = [], []
    for worker in chosen:
        try:
            planned.append(
                _plan_worker(loaded, worker, _of_worker(loaded, worker, handlers, features))
            )
        except ConfigError as error:
            problems.append(str(error))
    for each in planned:
        problems.extend(kafka_problems(loaded, each))
    if for_cluster and not problems:  # a misspelt name is the likelier mistake
        for each in planned:
            problems.extend(missing_brokers(loaded, each))
    if problems:
        # Several clients of several workers may refuse the same line.
        raise ConfigError(mask("\n".join(dict.fromkeys(problems))))
    return AppPlan(loaded.config, tuple(planned), mask, str(config), loaded)


def _taken(
    loaded: LoadedConfig, ours: Mapping[str, HandlerSpec], of_features: Mapping[str, HandlerSpec]
) -> Iterator[str]:
    """Yield the workers with both a section and a function as their handler."""
    for name in ours.keys() & of_features.keys():
        worker = loaded.config.workers[name]
        yield (
            f"{loaded.where(('workers', name, worker.handled_by))}: workers.{name}."
            f"{worker.handled_by}: is the handler, but the application has a handler {name!r}"
            f" ({ours[name].place}): remove or rename one of the two"
        )


def _problems(
    loaded: LoadedConfig, handlers: Mapping[str, HandlerSpec], only: Sequence[str]
) -> Iterator[str]:
    workers = loaded.config.workers
    for name in only:
        if name not in workers:
            yield f"worker {name}: there is no such worker; known are {', '.join(sorted(workers))}"
    for name, worker in workers.items():
        for missing in (each for each in worker.handlers if each not in handlers):
            there = ", ".join(sorted(handlers)) or (
                "none: name it, MODULE:APP, or use @app.handler in its module"
            )
            key = "handler" if worker.handler != name else ""
            where = loaded.where(("workers", name, *([key] if key else [])))
            yield (
                f"{where}: workers.{name}: the application has no handler {missing!r}; it has"
                f" {there}"
            )
    used = {handler for worker in workers.values() for handler in worker.handlers}
    for name, spec in handlers.items():
        if name not in used:
            yield (
                f"{spec.place}: no worker runs the handler {name!r}: add workers.{name} to the"
                " configuration, with enabled: false if it should not run"
            )


def _of_worker(
    loaded: LoadedConfig,
    worker: WorkerConfig,
    handlers: Mapping[str, HandlerSpec],
    features: FeatureList,
) -> Mapping[str, HandlerSpec]:
    """Return the handlers of a worker as its features call them."""
    try:
        return features.handlers_of(worker, handlers)
    except InvalidError as error:
        path = ("workers", worker.name)
        raise loaded.error_of([each.below(path) for each in error.problems]) from error


def _plan_worker(
    loaded: LoadedConfig, worker: WorkerConfig, handlers: Mapping[str, HandlerSpec]
) -> PlannedWorker:
    retry = worker.retry
    rules = RetryRules(
        attempts=retry.attempts,
        crash_attempts=retry.crash_attempts,
        backoff_min_s=retry.backoff[0],
        backoff_max_s=retry.backoff[1],
        on_failure=retry.on_failure or "overtake",
        when_spent=retry.when_spent,
        on_oversize=retry.on_oversize,
        fatal=_classes(loaded, worker, "fatal", retry.fatal),
        retryable=_classes(loaded, worker, "retryable", retry.retryable),
        levels=levels_of(worker),
        attempts_per_level=retry.attempts_per_level,
        is_final=worker.delivery is DeliveryMode.AT_MOST_ONCE,
        retries_stalled=worker.stall.action == "retry",
    )
    clients: dict[settings.Kind, dict[str, Any]] = {
        kind: dict(
            effective_kafka(
                loaded.config,
                worker,
                kind,
                consumer_only=settings.CONSUMER_ONLY,
                producer_only=settings.PRODUCER_ONLY,
            )
        )
        for kind in _KINDS
    }
    routes = planned_routes(loaded, worker, handlers)
    check_batches(loaded, worker, [route.handler for route in routes])
    planned = PlannedWorker(
        config=worker,
        routes=routes,
        retry=rules,
        consumer=with_levels(worker, clients["consumer"]),
        producer=clients["producer"],
        admin=clients["admin"],
    )
    loaded.refuse_handlers(worker, traits_of(planned))
    return planned


def traits_of(planned: PlannedWorker) -> dict[HandlerTrait, str]:
    """Return the traits of a worker's handlers, each with the name of one that has it."""
    first = planned.routes[0].handler.name
    traits = {HandlerTrait.BATCHES if planned.is_batch else HandlerTrait.SINGLE_RECORDS: first}
    if not planned.pool.interruptible:
        traits[HandlerTrait.ENDLESS_CALLS] = first
    for route in planned.routes:
        if route.handler.once is not None:
            traits.setdefault(HandlerTrait.ONCE, route.handler.name)
    return traits


_KINDS: tuple[settings.Kind, ...] = ("consumer", "producer", "admin")


def _classes(
    loaded: LoadedConfig, worker: WorkerConfig, key: str, names: Sequence[str | type[BaseException]]
) -> tuple[type[BaseException], ...]:
    """Resolve dotted names of exception classes."""
    found = []
    for name in names:
        kind = name if isinstance(name, type) else _resolve(name)
        if not (isinstance(kind, type) and issubclass(kind, BaseException)):
            where = loaded.where(("workers", worker.name, "retry", key))
            raise ConfigError(
                f"{where}: workers.{worker.name}.retry.{key}: {name!r} is not an importable"
                " exception class; write its dotted name, as in shop.errors.InvalidOrder"
            )
        found.append(kind)
    return tuple(found)


def _resolve(dotted: str) -> object:
    """Return the object of a dotted name, None if it cannot be imported."""
    module_name, _, attribute = dotted.rpartition(".")
    if not module_name:
        return getattr(builtins, dotted, None)
    try:
        return getattr(importlib.import_module(module_name), attribute, None)
    except ImportError:
        outer = _resolve(module_name) if "." in module_name else None
        return getattr(outer, attribute, None)
