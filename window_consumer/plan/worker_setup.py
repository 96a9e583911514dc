"""Everything that defines a worker except its connections."""

from __future__ import annotations

import socket

from window_consumer.engine.retry.copy_record import CopyOrigin
from window_consumer.model.log_events import LogEvent
from window_consumer.model.protocols import Clock
from window_consumer.plan.app_plan import AppPlan
from window_consumer.plan.calls import batch_handler_of, handler_of
from window_consumer.plan.definition import AppDefinition
from window_consumer.plan.preflight import Preparation, PreparedWorker
from window_consumer.plan.start_timeout import LOGGER
from window_consumer.runtime.error_report import ErrorReports
from window_consumer.runtime.poll_loop import LoopRules
from window_consumer.runtime.worker import SystemClock, WorkerSetup


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
