"""Wires the message audit into an application: its topic, its directory, its counters."""

from __future__ import annotations

import errno
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from typing import Final

from attrs import frozen

from window_consumer.audit.consumer import AuditRules
from window_consumer.audit.count import CountTier
from window_consumer.audit.process_audit import Audit, AuditSettings
from window_consumer.audit.sink import CountingSink, CountingWriter
from window_consumer.config import AuditConfig, LoadedConfig
from window_consumer.engine.observer import Observer
from window_consumer.kafka import settings
from window_consumer.kafka.event_writer import EventWriter
from window_consumer.kafka.log_writer import LogWriter
from window_consumer.model.errors import UsageError
from window_consumer.model.log_events import LogEvent
from window_consumer.model.protocols import Clock, Sink
from window_consumer.plan.app_plan import AppPlan
from window_consumer.plan.clients import Clients
from window_consumer.plan.event_topics import audit_topic, event_place, event_properties
from window_consumer.plan.preflight import Prepared, PreparedWorker
from window_consumer.plan.start_timeout import LOGGER
from window_consumer.runtime.segment_log.shipper import SegmentOutlet
from window_consumer.runtime.worker import SystemClock

_FULL: Final = {errno.ENOSPC, errno.EDQUOT}


@frozen
class Auditing:
    """Counts for all workers of a process."""

    audit: Audit

    def observer_of(self, worker: PreparedWorker) -> Observer:
        """Return the observer that counts what becomes of a worker's records."""
        return self.audit.consumer(worker.plan.name, worker.plan.config.group)

    def sink_of(self, worker: PreparedWorker, sink: Sink, clock: Clock) -> Sink:
        """Return a Sink that counts what a worker writes."""

        def origin_of(topic: str) -> str:
            # Looked up each time: with patterns the number of topics grows.
            retry_level = worker.retry_levels.get(topic)
            return "" if retry_level is None else retry_level.source

        counter = self.audit.producer(
            f"{worker.plan.name}-copies", worker.plan.config.group, origin_of
        )
        return CountingSink(sink, counter, clock)


def auditing_of(
    application: str, plan: AppPlan, prepared: Prepared, beside: ExitStack
) -> Auditing | None:
    """Start the audit; None where the configuration disables it, or its disk is full.

    Raises UsageError where its directory is not writable.
    """
    config = plan.config.audit
    if not config.enabled:
        return None
    problem = audit_topic(plan.config).problem(plan, event_place(plan, prepared))
    if problem is not None:
        LOGGER.warning("%s", plan.mask(problem), extra={"event": LogEvent.AUDIT_TOPIC_MISSING})
    rules = settings_of(config, Path(plan.file), application)
    audit = begun(rules, partial(_writer, plan, prepared))
    if audit is None:
        return None
    beside.callback(audit.close)
    return Auditing(audit)


def begun(rules: AuditSettings, make_outlet: Callable[[], SegmentOutlet]) -> Audit | None:
    """Start to count; None where the disk is full, a passing state that must not prevent a start.

    Raises UsageError where the directory is not writable.
    """
    try:
        return Audit(rules, make_outlet)
    except UsageError as error:
        if getattr(error.__cause__, "errno", None) not in _FULL:
            raise
        LOGGER.warning(
            "%s; nothing is counted until the next start",
            error,
            extra={"event": LogEvent.AUDIT_DISABLED},
        )
        return None


def settings_of(config: AuditConfig, file: Path, app: str) -> AuditSettings:
    """Return where an audit is kept, and how it counts; ``file`` is the configuration's."""
    return AuditSettings(
        directory=file.absolute().parent / str(config.directory),
        app=app,
        rules=AuditRules(round(config.bucket * 1000), config.ids),
        fsync=config.fsync,
    )


@contextmanager
def counting_redrives(
    loaded: LoadedConfig,
    clients: Clients,
    group: str,
    to: str,
    writer: LogWriter,
    *,
    transactional: bool,
) -> Iterator[LogWriter]:
    """Yield a writer that counts what is put back into ``to``, if the configuration says so.

    It is closed at the end. Raises UsageError where the audit's directory is not writable.
    """
    config = loaded.config.audit
    if not config.enabled:
        yield writer
        return
    needs = settings.EventNeeds("wc-audit", "all")
    access = (clients.log, clients.oauth_token)
    make = partial(EventWriter, clients.producer, needs, config.topic, *access)
    with Audit(settings_of(config, loaded.file, "redrive"), make) as audit:
        counter = audit.producer(f"{group}-redrive", group, tier=CountTier.REDRIVEN)
        counting = CountingWriter(writer, counter, to, SystemClock(), transactional=transactional)
        try:
            yield counting
        finally:
            counting.close()


def _writer(plan: AppPlan, prepared: Prepared) -> EventWriter:
    needs = settings.EventNeeds("wc-audit", "all")
    first = prepared.workers[0]
    properties = event_properties(plan.config, first.plan.config, "producer")
    topic = plan.config.audit.topic
    return EventWriter(properties, needs, topic, first.log, prepared.oauth_token)
