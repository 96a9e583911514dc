"""The wiring: from a prepared plan to workers with real connections."""

from __future__ import annotations

import socket
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import attrs

from window_consumer.app.calls import batch_handler_of, handler_of
from window_consumer.app.child_spec import ChildSpec
from window_consumer.app.definition import AppDefinition
from window_consumer.app.lifespans import StatesByWorker
from window_consumer.app.listeners import Listeners
from window_consumer.app.plan import AppPlan, PlannedWorker
from window_consumer.app.preflight import Preparation, Prepared, PreparedWorker
from window_consumer.app.start_timeout import LOGGER
from window_consumer.engine.retry.copy_record import CopyOrigin
from window_consumer.kafka.settings import ConsumerNeeds
from window_consumer.kafka.sink import KafkaSink
from window_consumer.kafka.source import KafkaSource
from window_consumer.model.log_events import LogEvent
from window_consumer.model.protocols import Clock
from window_consumer.runtime.calls.spans import CallSpans, spanned
from window_consumer.runtime.error_report import ErrorReports
from window_consumer.runtime.poll_loop import LoopRules, Phase
from window_consumer.runtime.pools.event_loop import EventLoop
from window_consumer.runtime.pools.pool import PoolParts
from window_consumer.runtime.running import MakeSource, MakeWorkers
from window_consumer.runtime.worker import SystemClock, Worker, WorkerSetup


def wire(
    app: AppDefinition,
    plan: AppPlan,
    prepared: Prepared,
    loops: Mapping[str, EventLoop],
    blueprints: Mapping[str, ChildSpec],
    listeners: Listeners,
) -> MakeWorkers:
    """Return the function that makes the workers once the lifespan has been entered.

    ``loops`` are the event loops of the workers with coroutines; ``blueprints`` are the child specs
    of those whose pools have child processes.
    """

    def make(state: Any, on_phase: Callable[[Worker, Phase], None]) -> Sequence[Worker]:
        workers = []
        for each in prepared.workers:
            name = each.plan.name
            setup = setup_of(app, plan, each)
            setup = attrs.evolve(setup, observers=listeners.observers_of(each))
            if listeners.spanning is not None:
                calls = listeners.spanning.calls_of(each.plan, setup.faults)
                setup = _with_spans(setup, each.plan, calls)
            parts = PoolParts(loops.get(name), blueprints.get(name), setup.logger)
            setup = attrs.evolve(setup, make_pool=each.plan.pool.make(parts))
            own = StatesByWorker.state_for(state, name)
            workers.append(_worker(setup, prepared, each, own, on_phase, listeners))
        return workers

    return make


def _with_spans(setup: WorkerSetup, planned: PlannedWorker, calls: CallSpans) -> WorkerSetup:
    handler = spanned(setup.handler, calls, batches=planned.is_batch, coroutines=planned.is_async)
    return attrs.evolve(setup, handler=handler)


def setup_of(
    app: AppDefinition, plan: AppPlan, worker: PreparedWorker, clock: Clock | None = None
) -> WorkerSetup:
    """Return everything that defines a worker except its connections; the clock has a default."""
    planned, config = worker.plan, worker.plan.config
    preparation = Preparation(plan, planned, worker.cluster, worker.log)
    clock = clock or SystemClock()

    def warn(event: LogEvent, text: str) -> None:
        LOGGER.warning("%s: %s", config.name, plan.mask(text), extra={"event": event})

    around = plan.config.topics, clock.wall_ms, warn
    return WorkerSetup(
        name=config.name,
        origin=CopyOrigin(config.group, planned.handler_names, app.version, socket.gethostname()),
        engine=planned.engine,
        loop=LoopRules(
            topics=(*worker.topics, *sorted(worker.reads)),
            revoke_timeout_s=config.revoke_timeout,
            stop_timeout_s=config.stop_timeout,
        ),
        handler=batch_handler_of(planned, app.layers, *around)
        if planned.is_batch
        else handler_of(planned, app.layers, *around),
        target_of=lambda source, level: worker.ladders[source].target(level),
        retry_levels=worker.retry_levels,
        ask_topics=lambda: preparation.refresh(worker),
        ask_ends=worker.cluster.log_ends,
        on_no_offset=config.on_no_offset,
        on_out_of_range=config.on_out_of_range,
        faults=ErrorReports(
            plan.mask, app.redactor, plan.config.errors.message, plan.config.mask_rules.error_text
        ),
        loggable_key=lambda topic, key: plan.config.mask_rules.loggable_key(
            [topic, _source_of(topic, worker, plan)], key
        ),
        logger=LOGGER,
        clock=clock,
        is_async=planned.is_async,
    )


def _source_of(topic: str, worker: PreparedWorker, plan: AppPlan) -> str | None:
    """Return the source topic of a topic's records, None if it is unknown."""
    retry_level = worker.retry_levels.get(topic)
    if retry_level is not None:
        return retry_level.source
    return None if worker.plan.config.is_retry_topic(topic, plan.config.topics) else topic


def source_maker(prepared: Prepared) -> MakeSource:
    """Return a function that makes another Source for a worker."""
    workers = {each.plan.name: each for each in prepared.workers}
    return lambda name: _source(workers[name])


def _source(worker: PreparedWorker) -> KafkaSource:
    config = worker.plan.config
    needs = ConsumerNeeds(
        group=config.group,
        worker=config.name,
        ordered=config.ordering != "unordered",
        memory=config.memory,
        partitions=sum(facts.partitions for facts in worker.topics.values())
        + sum(worker.topics[worker.retry_levels[name].source].partitions for name in worker.reads),
    )
    return KafkaSource(worker.plan.consumer, needs, worker.cluster, worker.log)


def _worker(
    setup: WorkerSetup,
    prepared: Prepared,
    worker: PreparedWorker,
    state: Any,
    on_phase: Callable[[Worker, Phase], None],
    listeners: Listeners,
) -> Worker:
    planned, config = worker.plan, worker.plan.config
    source = _source(worker)
    sink = KafkaSink(planned.producer, config.name, worker.log, prepared.oauth_token)
    heard = listeners.sink_of(worker, sink, setup.clock)
    return Worker(setup, source, heard, state, on_phase)
