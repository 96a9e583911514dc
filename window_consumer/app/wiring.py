"""The wiring: from a prepared plan to workers with real connections."""

from __future__ import annotations

import os
import socket
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import attrs

from window_consumer.engine.commits.delivery_guarantee import DeliveryMode
from window_consumer.engine.engine import Engine
from window_consumer.kafka.oauth import token_setting
from window_consumer.kafka.settings import ConsumerNeeds
from window_consumer.kafka.settings.transactions import transaction_settings, transactional_id
from window_consumer.kafka.sink import KafkaSink
from window_consumer.kafka.source import KafkaSource
from window_consumer.kafka.writing.transactions import KafkaTransactions
from window_consumer.plan.app_plan import AppPlan
from window_consumer.plan.child_spec import ChildSpec
from window_consumer.plan.definition import AppDefinition
from window_consumer.plan.feature_list import RunningFeatures
from window_consumer.plan.lifespans import StatesByWorker
from window_consumer.plan.topics.prepared_worker import Prepared, PreparedWorker
from window_consumer.plan.worker_setup import setup_of
from window_consumer.runtime.figures.worker_snapshot import Phase
from window_consumer.runtime.pools.event_loop import EventLoop
from window_consumer.runtime.pools.pool import PoolParts
from window_consumer.runtime.replica import NUMBER
from window_consumer.runtime.supervisor import MakeSource, MakeWorkers
from window_consumer.runtime.worker import Worker
from window_consumer.runtime.worker_setup import WorkerSetup
from window_consumer.runtime.writing.transactions import TransactionalSink


def wire(
    app: AppDefinition,
    plan: AppPlan,
    prepared: Prepared,
    loops: Mapping[str, EventLoop],
    child_specs: Mapping[str, ChildSpec],
    features: RunningFeatures,
) -> MakeWorkers:
    """Return the function that creates the workers after the lifespan has been entered.

    ``loops`` are the event loops of the workers with coroutines; ``child_specs`` are for
    those whose pools have child processes.
    """

    def make(state: Any, on_phase: Callable[[Worker, Phase], None]) -> Sequence[Worker]:
        workers = []
        for each in prepared.workers:
            name = each.plan.name
            layers = features.layers_of(each)
            rules = features.turn_rules_of(each)
            setup = setup_of(app, plan, each, layers=layers, turn_rules=rules)
            setup = attrs.evolve(
                setup,
                observers=features.observers_of(each),
                pause_rules=features.pause_rules_of(each),
                preparations=features.preparations_of(each),
                make_engine=partial(Engine, make_guarantee=features.guarantee_of(each)),
            )
            child_spec = child_specs.get(name)
            if child_spec is not None:
                child_spec = child_spec.within(layers)
            parts = PoolParts(loops.get(name), child_spec, setup.logger)
            setup = attrs.evolve(setup, make_pool=each.plan.pool.make(parts))
            own = StatesByWorker.state_for(state, name)
            workers.append(_worker(setup, prepared, each, own, on_phase, features))
        return workers

    return make


def source_maker(prepared: Prepared) -> MakeSource:
    """Return a function that makes another Source for a worker."""
    workers = {each.plan.name: each for each in prepared.workers}
    return lambda name: _source(workers[name])


def _source(worker: PreparedWorker) -> KafkaSource:
    config = worker.plan.config
    needs = ConsumerNeeds(
        group=config.group or None,
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
    features: RunningFeatures,
) -> Worker:
    planned, config = worker.plan, worker.plan.config
    source = _source(worker)
    if config.delivery is DeliveryMode.EXACTLY_ONCE:
        transactions = _transactions(worker, prepared)
        sink = features.sink_of(worker, transactions, setup.clock)
        return Worker(setup, source, TransactionalSink(sink, transactions), state, on_phase)
    plain = KafkaSink(planned.producer, config.name, worker.log, prepared.oauth_token)
    if features.sends_on_time(worker):
        plain.connect()
    return Worker(setup, source, features.sink_of(worker, plain, setup.clock), state, on_phase)


def _transactions(worker: PreparedWorker, prepared: Prepared) -> KafkaTransactions:
    planned, config = worker.plan, worker.plan.config
    process = os.environ.get(NUMBER, "")
    host = socket.gethostname()
    name = transactional_id(config.group, config.name, planned.consumer, host, process)
    settings = transaction_settings(planned.producer, config.name, name)
    settings.update(token_setting(settings, prepared.oauth_token))
    return KafkaTransactions(settings, worker.log)
