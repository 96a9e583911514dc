"""The message audit as a feature: its topic, its directory, its counters."""

from __future__ import annotations

import errno
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import partial
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, ClassVar, Final

from window_consumer.admin.config import AdminConfig
from window_consumer.audit.config import AuditConfig, conflicts
from window_consumer.audit.consumer import AuditRules
from window_consumer.audit.count import CountTier
from window_consumer.audit.metrics import METRICS, AuditFigures
from window_consumer.audit.process_audit import Audit, AuditSettings
from window_consumer.audit.shipper import NEEDS
from window_consumer.audit.sink import CountingSink, CountingWriter
from window_consumer.config import Config
from window_consumer.config.options import Section
from window_consumer.engine.observer import Observer
from window_consumer.kafka.event_writer import EventWriter
from window_consumer.kafka.log_writer import LogWriter
from window_consumer.model.errors import UsageError
from window_consumer.model.log_events import LogEvent
from window_consumer.model.protocols import Clock, Sink
from window_consumer.plan.clients import CopyTarget
from window_consumer.plan.feature import AppStart, Feature, PageContext
from window_consumer.plan.running_feature import RunningFeature
from window_consumer.plan.start_timeout import LOGGER
from window_consumer.plan.topics.event_topics import EventTopic
from window_consumer.plan.topics.prepared_worker import Prepared, PreparedWorker
from window_consumer.runtime.clock import SystemClock
from window_consumer.runtime.segment_log.shipper import SegmentOutlet

if TYPE_CHECKING:
    from window_consumer.audit.page import AuditPages

_FULL: Final = {errno.ENOSPC, errno.EDQUOT}

_COMMANDS: Final = {CountTier.REDRIVEN: "redrive", CountTier.REPLAYED: "replay"}
"""Commands that write copies beside the workers."""

_MONTH_MS: Final = 30 * 86_400_000
"""Counts are compared by the day, and holidays last longer than a week."""


class RunningAudit(RunningFeature):
    """Counts for all workers of a process."""

    def __init__(self, start: AppStart):
        self._application = start.application
        self._plan = start.plan
        self._audit: Audit | None = None
        """None until the cluster has answered, and while the disk is full."""

    @contextmanager
    def beside(self, prepared: Prepared) -> Iterator[None]:
        """Start to count. Raises UsageError if the directory is not writable."""
        plan = self._plan
        topic = audit_topic(plan.config)
        topic.prepare(plan, prepared, LogEvent.AUDIT_TOPIC_MISSING)
        rules = settings_of(plan.config.section(AuditConfig), Path(plan.file), self._application)
        self._audit = begun(rules, partial(topic.writer, plan, prepared, NEEDS))
        try:
            yield
        finally:
            if self._audit is not None:
                self._audit.close()

    def observer_of(self, worker: PreparedWorker) -> Observer | None:
        """Return the observer that counts the outcomes of a worker's records.

        A broadcast worker's records are not counted: each process reads them independently.
        """
        if self._audit is None or worker.plan.config.is_broadcast:
            return None
        return self._audit.consumer(worker.plan.name, worker.plan.config.group)

    def sink_of(self, worker: PreparedWorker, sink: Sink, clock: Clock) -> Sink:
        """Return a Sink that counts the records of a worker."""
        if self._audit is None:
            return sink

        def origin_of(topic: str) -> str:
            # Looked up each time: with patterns the number of topics grows.
            retry_level = worker.retry_levels.get(topic)
            return "" if retry_level is None else retry_level.source

        name, group = worker.plan.name, worker.plan.config.group
        return CountingSink(sink, self._audit.producer(f"{name}-copies", group, origin_of), clock)

    def feature_sink(self, sender: str, worker: PreparedWorker, sink: Sink, clock: Clock) -> Sink:
        """Return a Sink that counts a feature's records as produced."""
        del worker
        if self._audit is None:
            return sink
        return CountingSink(sink, self._audit.producer(f"wc-{sender}"), clock)

    def figures(self) -> AuditFigures | None:
        """Return the counts of the audit itself."""
        return None if self._audit is None else self._audit.figures()


class AuditFeature(Feature):
    """The message audit."""

    name = "audit"
    commands: ClassVar[Mapping[str, str]] = MappingProxyType(
        {"audit": "window_consumer.audit.cli:audit_group"}
    )

    section = Section(
        "audit",
        AuditConfig,
        "Counts of records by outcome, to compare with what was sent.",
        conflicts,
    )
    metrics = METRICS

    def event_topics(self, config: Config) -> Iterable[EventTopic]:
        """Return the topic of its counts."""
        return [audit_topic(config)] if config.section(AuditConfig).enabled else []

    def pages(self, context: PageContext) -> AuditPages | None:
        """Return the page of the report, if a pipeline keeps its table."""
        file = context.config.section(AdminConfig).pipeline
        if file is None:
            return None
        from window_consumer.audit.page import AuditPages  # noqa: PLC0415 - an optional extra
        from window_consumer.audit.page_reports import PageReports  # noqa: PLC0415 - as above

        return AuditPages(PageReports(context.loaded.file.parent / file))

    def starting(self, start: AppStart) -> AbstractContextManager[RunningFeature | None]:
        """Count for an application, if its configuration says so."""
        is_enabled = start.plan.config.section(AuditConfig).enabled
        return nullcontext(RunningAudit(start) if is_enabled else None)

    @contextmanager
    def copy_writer(self, target: CopyTarget, writer: LogWriter) -> Iterator[LogWriter]:
        """Yield a writer that counts the copies, if the configuration says so.

        It is closed at the end. Raises UsageError if the audit's directory is not writable.
        """
        config = target.loaded.config.section(AuditConfig)
        if not config.enabled:
            yield writer
            return
        clients, group = target.clients, target.group
        access = (clients.log, clients.oauth_token)
        make = partial(EventWriter, clients.producer, NEEDS, config.topic, *access)
        tier = CountTier(target.becomes)
        command = _COMMANDS[tier]
        with Audit(settings_of(config, target.loaded.file, command), make) as audit:
            counter = audit.producer(f"{group}-{command}", group, tier=tier)
            counting = CountingWriter(
                writer, counter, target.topic, SystemClock(), transactional=target.transactional
            )
            try:
                yield counting
            finally:
                counting.close()


def audit_topic(config: Config) -> EventTopic:
    """Return the topic for the counts of the audit."""
    return EventTopic(
        name=config.section(AuditConfig).topic,
        section="audit",
        what="counts of the audit",
        purpose="the audit",
        without_it="counts stay in audit.directory until then",
        retention_ms=_MONTH_MS,
    )


def begun(rules: AuditSettings, make_outlet: Callable[[], SegmentOutlet]) -> Audit | None:
    """Start to count; None if the disk is full, which may pass and must not prevent a start.

    Raises UsageError if the directory is not writable.
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
