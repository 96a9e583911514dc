"""The plan of a run: each worker with its handlers, and the rules of its configuration."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from attrs import field, frozen

from window_consumer.config import Config, LoadedConfig, Mask, WorkerConfig
from window_consumer.config.cores import usable_cores
from window_consumer.config.sections.concurrency import AutoConcurrency
from window_consumer.config.sections.fair import FairConfig
from window_consumer.config.sections.ttl import HeaderTtl
from window_consumer.config.units import DURATION_UNITS
from window_consumer.engine.decisions import EngineRules
from window_consumer.engine.guards.breaker_state import BreakerRules
from window_consumer.engine.guards.stuck_calls import StallRules
from window_consumer.engine.retry.policy import RetryRules
from window_consumer.engine.scheduling.batching import BatchRules
from window_consumer.engine.scheduling.concurrency.adaptive_concurrency import LimitRules
from window_consumer.engine.scheduling.rate_limit import RateRules
from window_consumer.engine.scheduling.shares.class_names import name_of, short
from window_consumer.engine.scheduling.shares.share_classes import FairRules
from window_consumer.kafka import settings
from window_consumer.model.conditions.tree import FieldValue
from window_consumer.plan.handlers import PlannedRoute
from window_consumer.plan.ladder_topics import writes_dead_letters
from window_consumer.runtime.calls.expiry import ExpiryRules, TtlHeader
from window_consumer.runtime.calls.layer import CallForm
from window_consumer.runtime.pools.pool import PoolKind
from window_consumer.runtime.pools.registry import kind_for


@frozen
class PlannedWorker:
    """One worker to run."""

    config: WorkerConfig
    routes: tuple[PlannedRoute, ...]
    """In routing order; at least one."""
    retry: RetryRules
    consumer: Mapping[str, Any]
    producer: Mapping[str, Any]
    admin: Mapping[str, Any]
    """The user's Kafka properties of each client; the client id of a built-in worker's consumer
    contains its levels."""

    @property
    def name(self) -> str:
        """The worker's name in the configuration."""
        return self.config.name

    @property
    def engine(self) -> EngineRules:
        """The configuration as rules for the worker's Engine."""
        config = self.config
        return EngineRules(
            slots=config.slots,
            delivery=config.delivery,
            limit=_limit(config, self.pool),
            rate=_rate(config),
            fair=fair_rules(config.fair),
            ordering=config.ordering,
            retry=self.retry,
            window_cells=config.window.cells,
            cell_records=config.window.cell_records,
            window_bytes=config.memory - config.memory // settings.PREFETCH_SHARE,
            commit_interval_s=config.commit_interval_s,
            breaker=BreakerRules(
                failures=config.breaker.failures,
                window_s=config.breaker.window,
                min_calls=config.breaker.min_calls,
                cool_down_s=config.breaker.cool_down,
                max_hold_s=config.breaker.max_hold,
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
                ends=self.pool.interruptible,
                leases=self.pool.leases,
            ),
        )

    @property
    def is_async(self) -> bool:
        """Whether its handlers are coroutines, which run on an event loop."""
        return self.routes[0].handler.is_async

    @property
    def pool(self) -> PoolKind:
        """The kind of pool that runs its calls."""
        kind = kind_for(self.config.pool, coroutines=self.is_async)
        assert kind is not None  # ``planned_routes`` refuses any other
        return kind

    @property
    def is_batch(self) -> bool:
        """Whether its handlers get lists of records."""
        return self.routes[0].handler.is_batch

    @property
    def form(self) -> CallForm:
        """The form of its calls."""
        return self.routes[0].handler.form

    @property
    def writes_dead_letters(self) -> bool:
        """Whether the worker needs dead-letter topics."""
        return writes_dead_letters(self.config, may_be_unroutable=self.may_be_unroutable)

    @property
    def may_be_unroutable(self) -> bool:
        """Whether there may be records that no handler accepts."""
        return all(route.when is not None for route in self.routes)

    @property
    def handler_names(self) -> str:
        """The names of its handlers, joined, for headers."""
        return ",".join(route.handler.name for route in self.routes)

    @property
    def expiry(self) -> ExpiryRules:
        """The expiry rules of the configuration."""
        ttl, on_expired = self.config.ttl, self.config.on_expired
        if isinstance(ttl, HeaderTtl):
            unit_s = float(DURATION_UNITS[ttl.unit])
            return ExpiryRules(None, TtlHeader(ttl.header, unit_s, ttl.format), on_expired)
        return ExpiryRules(ttl, None, on_expired)


def _rate(config: WorkerConfig) -> RateRules | None:
    rate = config.rate_per_process
    return None if rate is None else RateRules(rate.per_s, rate.per, rate.burst)


def fair_rules(fair: FairConfig) -> FairRules | None:
    """Return the rules of the section ``fair``; None if records start as they arrive."""
    if fair.by is None:
        return None
    return FairRules(
        name_of(fair.by),
        {short(name): weight for name, weight in fair.weights.items()},
        fair.order,
        fair.floor,
        fair.at_most.share,
        fair.at_most.slots,
        fair.max_classes,
        of_keys=isinstance(fair.by, FieldValue) and fair.by.name == "key",
    )


def _limit(config: WorkerConfig, pool: PoolKind) -> LimitRules | None:
    auto = config.concurrency
    if not isinstance(auto, AutoConcurrency):
        return None
    if pool.computes_in_parallel:
        return LimitRules(auto.lower, first=usable_cores())
    return LimitRules(auto.lower)


@frozen
class AppPlan:
    """Everything that will run."""

    config: Config
    workers: tuple[PlannedWorker, ...]
    mask: Mask
    file: str
    loaded: LoadedConfig = field(repr=False)
    version: str = ""
    """The application's, empty if it has none."""

    def where(self, *path: str) -> str:
        """Return where a key was set, for messages."""
        return self.loaded.where(path)
