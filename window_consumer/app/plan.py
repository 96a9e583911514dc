"""The plan: configuration and handlers, merged and checked without a cluster."""

from __future__ import annotations

import builtins
import importlib
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from attrs import field, frozen

from window_consumer.app.handlers import (
    HandlerSpec,
    PlannedRoute,
    planned_routes,
)
from window_consumer.app.topics.ladder_topics import (
    levels_of,
    writes_dead_letters,
)
from window_consumer.config import (
    BatchConfig,
    Config,
    Loaded,
    Mask,
    WorkerConfig,
    effective_kafka,
    load,
)
from window_consumer.config.cores import usable_cores
from window_consumer.config.sections.concurrency import AutoConcurrency
from window_consumer.config.sections.ttl import HeaderTtl
from window_consumer.config.units import DURATION_UNITS
from window_consumer.engine.commit_metadata import (
    MAX_BYTES,
    worst_case_bytes,
)
from window_consumer.engine.decisions import EngineRules
from window_consumer.engine.guards.circuit_breaker import BreakerRules
from window_consumer.engine.guards.stalls import StallRules
from window_consumer.engine.retry.policy import RetryRules
from window_consumer.engine.scheduling.adaptive_concurrency import LimitRules
from window_consumer.engine.scheduling.batching import BatchRules
from window_consumer.engine.scheduling.rate_limit import RateRules
from window_consumer.kafka import settings
from window_consumer.kafka.settings.check import probably_meant, refused_by_client
from window_consumer.kafka.settings.client_files import (
    names_a_file,
    unusable_files,
)
from window_consumer.model.errors import ConfigError
from window_consumer.runtime.calls.expiry import (
    ExpiryRules,
    TtlHeader,
)


def check_batches(loaded: Loaded, worker: WorkerConfig, handlers: Sequence[HandlerSpec]) -> None:
    """Raise ConfigError for handlers of both kinds in one worker, and keys that make no sense."""
    batch = [each.name for each in handlers if each.is_batch]
    plain = [each.name for each in handlers if not each.is_batch]
    path = ("workers", worker.name)
    if batch and plain:
        raise ConfigError(
            f"{loaded.where((*path, 'handler'))}: workers.{worker.name}.handler: {batch[0]} is a"
            f" batch handler and {plain[0]} is none: one worker runs handlers of one kind; give"
            " each kind a worker and a group of its own, or make both batch handlers"
        )
    if plain and worker.batch != BatchConfig():
        raise ConfigError(
            f"{loaded.where((*path, 'batch'))}: workers.{worker.name}.batch: {plain[0]} gets one"
            " record a call: take batch out, or decorate the handler with @app.batch_handler"
        )
    records = worker.window.cells * worker.window.cell_records
    if batch and worker.batch.max_records > records:
        raise ConfigError(
            f"{loaded.where((*path, 'batch', 'max_records'))}: workers.{worker.name}.batch."
            f"max_records: is {worker.batch.max_records}, and a partition's window holds {records}"
            " records: no batch would ever be full; write less, or more window.cells or"
            " window.cell_records"
        )


@frozen
class PlannedWorker:
    """One worker that will run."""

    config: WorkerConfig
    routes: tuple[PlannedRoute, ...]
    """In the order in which they are asked; at least one."""
    retry: RetryRules
    consumer: Mapping[str, Any]
    producer: Mapping[str, Any]
    admin: Mapping[str, Any]
    """The user's Kafka properties of each client."""

    @property
    def name(self) -> str:
        """The worker's name in the configuration."""
        return self.config.name

    @property
    def engine(self) -> EngineRules:
        """What the configuration means to the worker's Engine."""
        config = self.config
        return EngineRules(
            slots=config.slots,
            limit=_limit(config),
            rate=_rate(config),
            ordering=config.ordering,
            retry=self.retry,
            window_cells=config.window.cells,
            cell_records=config.window.cell_records,
            window_bytes=config.memory - config.memory // settings.PREFETCH_SHARE,
            commit_interval_s=config.commit_interval,
            breaker=BreakerRules(
                failures=config.breaker.failures,
                window_s=config.breaker.window,
                min_calls=config.breaker.min_calls,
                cool_down_s=config.breaker.cool_down,
                enabled=config.breaker.enabled,
            ),
            batch=BatchRules(
                max_records=config.batch.max_records,
                min_records=config.batch.min_records,
                max_wait_s=config.batch.max_wait,
            )
            if self.is_batch
            else None,
            stall=StallRules(
                after_s=config.stall.after,
                action=config.stall.action,
                max_abandoned=config.max_abandoned,
                ends=self.is_async or config.pool == "processes",
            ),
        )

    @property
    def is_async(self) -> bool:
        """Whether its handlers are coroutines, which run on an event loop."""
        return self.routes[0].handler.is_async

    @property
    def is_batch(self) -> bool:
        """Whether its handlers get lists of records."""
        return self.routes[0].handler.is_batch

    @property
    def writes_dead_letters(self) -> bool:
        """Whether the worker needs dead-letter topics."""
        return writes_dead_letters(self.config, may_be_unroutable=self.may_be_unroutable)

    @property
    def may_be_unroutable(self) -> bool:
        """Whether there may be records that are for none of the handlers."""
        return all(route.when is not None for route in self.routes)

    @property
    def handler_names(self) -> str:
        """The names of its handlers, for headers that can name only all of them."""
        return ",".join(route.handler.name for route in self.routes)

    @property
    def expiry(self) -> ExpiryRules:
        """What the configuration says of records that are too old."""
        ttl, on_expired = self.config.ttl, self.config.on_expired
        if isinstance(ttl, HeaderTtl):
            unit_s = float(DURATION_UNITS[ttl.unit])
            return ExpiryRules(None, TtlHeader(ttl.header, unit_s, ttl.format), on_expired)
        return ExpiryRules(ttl, None, on_expired)


def _rate(config: WorkerConfig) -> RateRules | None:
    rate = config.rate_per_process
    return None if rate is None else RateRules(rate.per_s, rate.per, rate.burst)


def _limit(config: WorkerConfig) -> LimitRules | None:
    auto = config.concurrency
    if not isinstance(auto, AutoConcurrency):
        return None
    if config.pool == "processes":  # which are for what computes
        return LimitRules(auto.lower, first=usable_cores())
    return LimitRules(auto.lower)


@frozen
class Plan:
    """Everything that will run."""

    config: Config
    workers: tuple[PlannedWorker, ...]
    mask: Mask
    file: str
    loaded: Loaded = field(repr=False)

    def where(self, *path: str) -> str:
        """Return where a key was set, for messages."""
        return self.loaded.where(path)


def make_plan(
    *,
    config: Path,
    handlers: Mapping[str, HandlerSpec],
    only: Sequence[str] = (),
    overrides: Sequence[str] = (),
    for_cluster: bool = False,
) -> Plan:
    """Load the configuration and find each worker its handler; ConfigError names all problems.

    ``for_cluster`` is for what is about to connect: it has to know its brokers.
    """
    defaults = {name: spec.defaults for name, spec in handlers.items()}
    loaded = load(config, defaults, overrides)
    mask = Mask(loaded.secrets)
    problems = list(_problems(loaded, handlers, only))
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
            planned.append(_plan_worker(loaded, worker, handlers))
        except ConfigError as error:
            problems.append(str(error))
    for each in planned:
        problems.extend(_kafka_problems(loaded, each))
    if for_cluster and not problems:  # a misspelt name is the better hint
        for each in planned:
            problems.extend(_missing_brokers(loaded, each))
    if problems:
        # Several clients, of several workers, may refuse one and the same line.
        raise ConfigError(mask("\n".join(dict.fromkeys(problems))))
    return Plan(loaded.config, tuple(planned), mask, str(config), loaded)


def _problems(
    loaded: Loaded, handlers: Mapping[str, HandlerSpec], only: Sequence[str]
) -> Iterator[str]:
    workers = loaded.config.workers
    for name in only:
        if name not in workers:
            yield f"worker {name}: there is no such worker; there are {', '.join(sorted(workers))}"
    for name, worker in workers.items():
        for missing in (each for each in worker.handlers if each not in handlers):
            there = ", ".join(sorted(handlers)) or "none: is @app.handler used in the module?"
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


def _plan_worker(
    loaded: Loaded, worker: WorkerConfig, handlers: Mapping[str, HandlerSpec]
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
    return PlannedWorker(
        config=worker,
        routes=routes,
        retry=rules,
        consumer=clients["consumer"],
        producer=clients["producer"],
        admin=clients["admin"],
    )


_KINDS: tuple[settings.Kind, ...] = ("consumer", "producer", "admin")


def _classes(
    loaded: Loaded, worker: WorkerConfig, key: str, names: Sequence[str | type[BaseException]]
) -> tuple[type[BaseException], ...]:
    """Resolve dotted names of exception classes."""
    found = []
    for name in names:
        kind = name if isinstance(name, type) else _resolve(name)
        if not (isinstance(kind, type) and issubclass(kind, BaseException)):
            where = loaded.where(("workers", worker.name, "retry", key))
            raise ConfigError(
                f"{where}: workers.{worker.name}.retry.{key}: {name!r} is no exception class that"
                " can be imported; write its dotted name, as in shop.errors.InvalidOrder"
            )
        found.append(kind)
    return tuple(found)


def _resolve(dotted: str) -> object:
    """Return what a dotted name stands for, None where it cannot be imported."""
    module_name, _, attribute = dotted.rpartition(".")
    if not module_name:
        return getattr(builtins, dotted, None)
    try:
        return getattr(importlib.import_module(module_name), attribute, None)
    except ImportError:
        outer = _resolve(module_name) if "." in module_name else None
        return getattr(outer, attribute, None)


def _kafka_problems(loaded: Loaded, worker: PlannedWorker) -> Iterator[str]:
    """Yield the Kafka properties that break a guarantee, then those that librdkafka refuses."""
    users: dict[settings.Kind, Mapping[str, Any]] = {
        "consumer": worker.consumer,
        "producer": worker.producer,
        "admin": worker.admin,
    }
    refused = False
    for kind, user in users.items():
        for key, reason in (*settings.refusals(user, kind), *unusable_files(user)):
            refused = True
            yield f"{_where_kafka(loaded, worker.name, kind, key)}: kafka: {reason}"
    if refused:
        return
    needs = settings.ConsumerNeeds(
        group=worker.config.group,
        worker=worker.name,
        ordered=worker.config.ordering != "unordered",
        memory=worker.config.memory,
    )
    for protocol in settings.group_protocols(worker.consumer):
        conf = settings.consumer_settings(worker.consumer, needs, protocol)
        yield from _refused(loaded, worker.name, "consumer", conf)
    conf = settings.producer_settings(worker.producer, worker.name)
    yield from _refused(loaded, worker.name, "producer", conf)
    conf = settings.admin_settings(worker.admin, worker.name)
    yield from _refused(loaded, worker.name, "admin", conf)


_ADDRESS = re.compile(r"(\w+://)?(\[[\da-fA-F:.%]+\]|[^\s:/\[\]]+)(:0*[1-9]\d{0,4})?")
"""What librdkafka takes for a broker: the port is 9092 unless it is given."""


def _missing_brokers(loaded: Loaded, worker: PlannedWorker) -> Iterator[str]:
    """Yield that a client of a worker does not know its brokers, or what is no address of one."""
    users: dict[settings.Kind, Mapping[str, Any]] = {
        "consumer": worker.consumer,
        "producer": worker.producer,
        "admin": worker.admin,
    }
    without: list[settings.Kind] = []
    for kind, user in users.items():
        found = [key for key in sorted(settings.BOOTSTRAP) if str(user.get(key, "")).strip(" ,")]
        without += [] if found else [kind]
        for key in found:
            for address in filter(None, map(str.strip, str(user[key]).split(","))):
                if not _ADDRESS.fullmatch(address):
                    yield (
                        f"{_where_kafka(loaded, worker.name, kind, key)}: kafka.{key}: {address!r}"
                        " is not an address: expected a host and a port, as in broker-1:9092"
                    )
    if without:
        whose = "" if len(without) == len(users) else f" for the {' and the '.join(without)}"
        place = _where_kafka(loaded, worker.name, without[0], "bootstrap.servers")
        yield (
            f"{place}: kafka.bootstrap.servers: is missing{whose}:"
            " the addresses of the brokers, as in broker-1:9092,broker-2:9092"
        )


def _refused(
    loaded: Loaded, worker: str, kind: settings.Kind, conf: settings.Settings
) -> Iterator[str]:
    refusal = refused_by_client(kind, conf)
    if refusal is not None:
        where = _where_kafka(loaded, worker, kind, refusal.key)
        about = ""
        if refusal.key is not None and names_a_file(refusal.key):
            about = f" ({conf.get(refusal.key)} is there: has it the right kind of content?)"
        about = about or probably_meant(refusal.text, refusal.key)
        yield f"{where}: kafka: {refusal.text}{about}"


def _where_kafka(loaded: Loaded, worker: str, kind: settings.Kind, key: str | None) -> str:
    """Return where a Kafka property was set: the most specific of the four places."""
    own, shared = loaded.config.workers[worker].kafka, loaded.config.kafka
    places: list[tuple[tuple[str, ...], Mapping[str, object]]] = [
        (("workers", worker, "kafka", kind), getattr(own, kind)),
        (("workers", worker, "kafka"), own.common),
        (("kafka", kind), getattr(shared, kind)),
        (("kafka",), shared.common),
    ]
    for place, properties in places:
        if key is not None and key in properties:
            return loaded.where((*place, key))
    return loaded.where(("kafka",))


def metadata_fits(worker: PlannedWorker) -> bool:
    """Tell whether the done ranges of a full window always fit into a commit."""
    window = worker.config.window
    return worst_case_bytes(window.cells * window.cell_records) <= MAX_BYTES
