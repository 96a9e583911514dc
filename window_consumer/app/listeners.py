"""Listeners to the workers of a process, which run from before the first one to the end.

This module starts the configured listeners. A listener may receive the events of records
(``Observer``), and may have threads and files that end after the workers.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager, ExitStack
from typing import Protocol

from attrs import frozen

from window_consumer.audit.wire import Auditing, auditing_of, counting_redrives
from window_consumer.config import Config, LoadedConfig
from window_consumer.database.wire import RelayThread, backlog_of, relay_beside
from window_consumer.engine.observer import Observer
from window_consumer.kafka.log_writer import LogWriter
from window_consumer.metrics.otel.wire import Spanning, spanning
from window_consumer.model.protocols import Clock, Sink
from window_consumer.plan.app_plan import AppPlan
from window_consumer.plan.clients import Clients
from window_consumer.plan.definition import AppDefinition
from window_consumer.plan.preflight import Prepared, PreparedWorker
from window_consumer.runtime.figures.measures import OutboxBacklog, ProcessFigures
from window_consumer.trace.wire import Tracing, tracing_of


class AppListener(Protocol):
    """A listener to all workers of a process."""

    def observer_of(self, worker: PreparedWorker) -> Observer | None:
        """Return the observer of a worker's records, None for none."""


@frozen
class Listeners:
    """All listeners of a process."""

    each: Sequence[AppListener] = ()
    spanning: Spanning | None = None
    """Wraps calls in spans; also one of ``each``."""
    auditing: Auditing | None = None
    """Also receives what workers write."""
    tracing: Tracing | None = None
    outbox: RelayThread | None = None

    def figures(self) -> ProcessFigures:
        """Return the listeners' figures."""
        return ProcessFigures(
            None if self.tracing is None else self.tracing.writer.figures(),
            None if self.auditing is None else self.auditing.audit.figures(),
            None if self.outbox is None else self.outbox.figures(),
        )

    def observers_of(self, worker: PreparedWorker) -> tuple[Observer, ...]:
        """Return the observers of a worker's records."""
        observers = (listener.observer_of(worker) for listener in self.each)
        return tuple(observer for observer in observers if observer is not None)

    def sink_of(self, worker: PreparedWorker, sink: Sink, clock: Clock) -> Sink:
        """Return the sink for a worker's copies and results, observed where necessary."""
        return sink if self.auditing is None else self.auditing.sink_of(worker, sink, clock)


def counted_redrive(
    loaded: LoadedConfig,
    clients: Clients,
    group: str,
    to: str,
    writer: LogWriter,
    *,
    transactional: bool,
) -> AbstractContextManager[LogWriter]:
    """Return a writer that the audit observes, if configured, see ``counting_redrives``."""
    return counting_redrives(loaded, clients, group, to, writer, transactional=transactional)


def listeners_of(
    app: AppDefinition, plan: AppPlan, prepared: Prepared, beside: ExitStack
) -> Listeners:
    """Start the configured listeners; ``beside`` exits when all workers have ended."""
    spans = spanning(plan, beside)
    version = f" {app.version}" if app.version else ""
    auditing = auditing_of(app.name, plan, prepared, beside)
    tracing = tracing_of(f"{app.name}{version}", plan, prepared, beside)
    each: list[AppListener | None] = [tracing, spans, auditing]
    there = [listener for listener in each if listener is not None]
    log = prepared.workers[0].log
    relay = relay_beside(plan.config, log, prepared.oauth_token, beside)
    return Listeners(there, spans, auditing, tracing, relay)


def outbox_backlog(config: Config) -> OutboxBacklog | None:
    """Return what waits in the outbox, see ``backlog_of``."""
    return backlog_of(config)
