"""Everything that defines a worker except its connections."""

from __future__ import annotations

import socket
from collections.abc import Sequence

from window_consumer.config import TopicNames
from window_consumer.engine.retry.copy_record import CopyOrigin, Target
from window_consumer.engine.retry.retry_topics import Level
from window_consumer.engine.turn import TurnRule
from window_consumer.model.log_events import LogEvent
from window_consumer.model.protocols import Clock
from window_consumer.plan.app_plan import AppPlan
from window_consumer.plan.calls import copy_test
from window_consumer.plan.definition import AppDefinition
from window_consumer.plan.start_timeout import LOGGER
from window_consumer.plan.topics.preparation import Preparation
from window_consumer.plan.topics.prepared_worker import PreparedWorker
from window_consumer.runtime.calls.expiry import ExpiryTurns
from window_consumer.runtime.calls.layer import CallLayer, CallTools
from window_consumer.runtime.clock import SystemClock
from window_consumer.runtime.error_report import ErrorReports
from window_consumer.runtime.poll_loop import LoopRules
from window_consumer.runtime.worker_setup import WorkerSetup


def setup_of(
    app: AppDefinition,
    plan: AppPlan,
    worker: PreparedWorker,
    clock: Clock | None = None,
    layers: Sequence[CallLayer] = (),
    turn_rules: Sequence[TurnRule] = (),
) -> WorkerSetup:
    """Return everything that defines a worker except its connections; the clock has a default.

    ``layers`` surround its calls in addition to those of the application, and ``turn_rules`` take
    precedence over a built-in worker's own rule. Raises UsageError for a layer that cannot surround
    the calls.
    """
    planned, config = worker.plan, worker.plan.config
    preparation = Preparation(plan, planned, worker.cluster, worker.log)
    clock = clock or SystemClock()

    def warn(event: LogEvent, text: str) -> None:
        LOGGER.warning("%s: %s", config.name, plan.mask(text), extra={"event": event})

    faults = ErrorReports(
        plan.mask, app.redactor, plan.config.errors.message, plan.config.mask_rules.error_text
    )
    for layer in layers:
        layer.refuse(planned.form)
    tools = CallTools(copy_test(planned, plan.config.topics), clock.wall_ms, warn, faults)

    def target_of(source: str, level: Level | None) -> Target:
        return worker.ladders[source].target(level)

    rules: list[TurnRule] = []
    if planned.expiry.expires_any:
        rules.append(ExpiryTurns(planned.expiry, tools))
    rules += turn_rules
    made = (route.handler.rule_of for route in planned.routes)
    rules += [make(target_of) for make in made if make is not None]
    return WorkerSetup(
        name=config.name,
        origin=CopyOrigin(config.group, planned.handler_names, app.version, socket.gethostname()),
        engine=planned.engine,
        loop=LoopRules(
            topics=(*worker.topics, *sorted(worker.reads)),
            revoke_timeout_s=config.revoke_timeout,
            stop_timeout_s=config.stop_timeout,
        ),
        handler=app.calls_of(planned, tools, layers),
        target_of=target_of,
        retry_levels=worker.retry_levels,
        ask_topics=lambda: preparation.refresh(worker),
        ask_ends=worker.cluster.log_ends,
        on_no_offset=config.on_no_offset,
        broadcast_begin=config.broadcast.from_,
        on_out_of_range=config.on_out_of_range,
        faults=faults,
        loggable_key=lambda topic, key: plan.config.mask_rules.loggable_key(
            [topic, _source_of(topic, worker, plan)], key
        ),
        logger=LOGGER,
        clock=clock,
        is_async=planned.is_async,
        turn_rules=tuple(rules),
    )


def _source_of(topic: str, worker: PreparedWorker, plan: AppPlan) -> str | None:
    """Return the source topic of a topic's records, None if it is unknown."""
    retry_level = worker.retry_levels.get(topic)
    if retry_level is not None:
        return retry_level.source
    return None if TopicNames(worker.plan.config, plan.config.topics).is_read(topic) else topic
