"""The message trace as a feature: its topic, exporter, observers and page."""

from __future__ import annotations

import socket
from collections.abc import Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, ClassVar, Final

from window_consumer.admin.config import AdminConfig
from window_consumer.config import Config
from window_consumer.config.options import Section
from window_consumer.engine.observer import Observer
from window_consumer.kafka.event_writer import EventWriter
from window_consumer.kafka.settings import EventNeeds
from window_consumer.model.key_forms import key_form
from window_consumer.model.log_events import LogEvent
from window_consumer.model.protocols import Clock, Sink
from window_consumer.plan.app_plan import AppPlan
from window_consumer.plan.feature import AppStart, Feature, PageContext
from window_consumer.plan.running_feature import RunningFeature
from window_consumer.plan.start_timeout import LOGGER
from window_consumer.plan.topics.event_topics import EventTopic
from window_consumer.plan.topics.prepared_worker import Prepared, PreparedWorker
from window_consumer.trace.config import TraceConfig, conflicts
from window_consumer.trace.event import Role
from window_consumer.trace.metrics import METRICS, TraceFigures
from window_consumer.trace.recording.exporter import TraceExporter
from window_consumer.trace.recording.exporters import CLIENT_ID, Acks, way_out
from window_consumer.trace.recording.inbox import EventOrigin
from window_consumer.trace.recording.producer_trace import ProducerTrace, TracedSink
from window_consumer.trace.recording.worker_trace import ConsumerTrace
from window_consumer.trace.recording.writer import TraceWriter, host_address
from window_consumer.trace.sampling import Sampling

if TYPE_CHECKING:
    from window_consumer.trace.page import TracePages

_WEEK_MS: Final = 7 * 86_400_000
"""Long enough to ask on Monday about the weekend."""


class RunningTrace(RunningFeature):
    """The trace of an application, with an observer for each worker."""

    def __init__(self, start: AppStart, sampling: Sampling):
        version = f" {start.version}" if start.version else ""
        self._application = f"{start.application}{version}"
        self._plan = start.plan
        self._sampling = sampling
        self._host = host_address()
        number = "" if start.replica is None else f"-{start.replica.number}"
        self._process = f"{socket.gethostname()}{number}"
        """Used instead of a group if each process reads everything."""
        self._writer: TraceWriter | None = None
        """None until the cluster has answered."""

    @contextmanager
    def beside(self, prepared: Prepared) -> Iterator[None]:
        """Write events; never fails a start."""
        plan, config = self._plan, self._plan.config.section(TraceConfig)
        trace_topic(plan.config).prepare(plan, prepared, LogEvent.TRACE_TOPIC_MISSING)
        form = None
        if config.keys != "off":
            form = key_form(config.keys, (config.key_secret or "").encode())
        self._writer = TraceWriter(_way(plan, prepared), form, config.flush, LOGGER)
        self._writer.start()
        try:
            yield
        finally:
            self._writer.close()

    def observer_of(self, worker: PreparedWorker) -> Observer | None:
        """Return the observer that traces a worker's records."""
        if self._writer is None:
            return None
        planned = worker.plan
        about = EventOrigin(
            role=Role.CONSUMER,
            cluster=worker.cluster.bootstrap,
            client_id=str(planned.consumer.get("client.id", f"wc-{planned.name}")),
            host=self._host,
            app=self._application,
            group=planned.config.group or f"{planned.name}@{self._process}",
            worker=planned.name,
        )
        return ConsumerTrace(
            self._writer,
            about,
            self._sampling,
            all_failures=self._plan.config.section(TraceConfig).failures == "all",
            handlers=planned.config.handlers,
        )

    def feature_sink(self, sender: str, worker: PreparedWorker, sink: Sink, clock: Clock) -> Sink:
        """Return a Sink that traces a feature's records."""
        del clock
        if self._writer is None:
            return sink
        about = EventOrigin(
            role=Role.PRODUCER,
            cluster=worker.cluster.bootstrap,
            client_id=f"wc-{sender}",
            host=self._host,
            app=self._application,
        )
        config = self._plan.config.section(TraceConfig)
        failures = config.failures == "all"
        trace = ProducerTrace(
            self._writer, about, self._sampling, lambda: None, all_failures=failures
        )
        return TracedSink(sink, trace)

    def figures(self) -> TraceFigures | None:
        """Return the figures of the events."""
        return None if self._writer is None else self._writer.figures()


class TraceFeature(Feature):
    """The message trace."""

    name = "trace"
    commands: ClassVar[Mapping[str, str]] = MappingProxyType(
        {"trace": "window_consumer.trace.cli:trace_group"}
    )

    section = Section(
        "trace", TraceConfig, "Records the path of each record, for later searches.", conflicts
    )
    metrics = METRICS

    def event_topics(self, config: Config) -> Iterable[EventTopic]:
        """Return the topic of its events."""
        return [] if config.section(TraceConfig).sample is None else [trace_topic(config)]

    def pages(self, context: PageContext) -> TracePages:
        """Return the pages of journeys; raises ConfigError."""
        from window_consumer.trace.page import TracePages  # noqa: PLC0415 - an optional extra

        file = context.config.section(AdminConfig).pipeline
        if file is None:
            return TracePages(None)
        # A worker without the page does not need the table's library.
        from window_consumer.trace.journey_view import JourneyPages  # noqa: PLC0415 - as above

        pipeline = context.loaded.file.parent / file
        return TracePages(JourneyPages.of_config(pipeline, context.config.mask_rules))

    def starting(self, start: AppStart) -> AbstractContextManager[RunningFeature | None]:
        """Trace the records of an application, if its configuration says so."""
        sample = start.plan.config.section(TraceConfig).sample
        if sample is None:
            return nullcontext()
        return nullcontext(RunningTrace(start, Sampling(sample.ratio, sample.by)))


def trace_topic(config: Config) -> EventTopic:
    """Return the topic for the events of the message trace."""
    return EventTopic(
        name=config.section(TraceConfig).topic,
        section="trace",
        what="events of the message trace",
        purpose="the message trace",
        without_it="events of the trace are lost until then; workers are not affected",
        retention_ms=_WEEK_MS,
    )


def _way(plan: AppPlan, prepared: Prepared) -> TraceExporter:
    config, topic = plan.config.section(TraceConfig), trace_topic(plan.config)

    def events(acks: Acks) -> EventWriter:
        return topic.writer(plan, prepared, EventNeeds(CLIENT_ID, acks))

    directory = None
    if config.way == "spool":
        directory = Path(plan.file).absolute().parent / str(config.directory)
    return way_out(
        events,
        config.topic,
        LOGGER,
        acks=config.acks,
        directory=directory,
        max_bytes=config.max_bytes,
        ship_after_s=config.flush,
    )
