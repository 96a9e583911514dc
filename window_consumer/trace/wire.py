"""Wires the message trace of an application: its topic, exporter and observers."""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING

from attrs import frozen

from window_consumer.config import TraceConfig
from window_consumer.engine.observer import Observer
from window_consumer.kafka.event_writer import EventWriter
from window_consumer.kafka.settings import EventNeeds
from window_consumer.model.key_forms import key_form
from window_consumer.model.log_events import LogEvent
from window_consumer.plan.app_plan import AppPlan
from window_consumer.plan.event_topics import event_place, event_properties, trace_topic
from window_consumer.plan.preflight import Prepared, PreparedWorker
from window_consumer.plan.start_timeout import LOGGER
from window_consumer.trace.event import Role
from window_consumer.trace.recording.exporter import TraceExporter
from window_consumer.trace.recording.exporters import CLIENT_ID, Acks, way_out
from window_consumer.trace.recording.notes import EventOrigin
from window_consumer.trace.recording.worker_trace import ConsumerTrace
from window_consumer.trace.recording.writer import TraceWriter, host_address
from window_consumer.trace.sampling import Sampling

if TYPE_CHECKING:
    from window_consumer.trace.page import TracePages


@frozen
class Tracing:
    """The running trace, with an observer for each worker."""

    config: TraceConfig
    sampling: Sampling
    writer: TraceWriter
    app: str
    host: str

    def observer_of(self, worker: PreparedWorker) -> Observer:
        """Return the observer that traces a worker's records."""
        planned = worker.plan
        about = EventOrigin(
            role=Role.CONSUMER,
            cluster=worker.cluster.bootstrap,
            client_id=str(planned.consumer.get("client.id", f"wc-{planned.name}")),
            host=self.host,
            app=self.app,
            group=planned.config.group,
            worker=planned.name,
        )
        return ConsumerTrace(
            self.writer,
            about,
            self.sampling,
            all_failures=self.config.failures == "all",
            handlers=planned.config.handlers,
        )


def tracing_of(
    application: str, plan: AppPlan, prepared: Prepared, beside: ExitStack
) -> Tracing | None:
    """Start the trace, or return None if the configuration has none; never fails a start.

    ``application`` is its name and version.
    """
    config = plan.config.trace
    if config.sample is None:
        return None
    problem = trace_topic(plan.config).problem(plan, event_place(plan, prepared))
    if problem is not None:
        LOGGER.warning("%s", plan.mask(problem), extra={"event": LogEvent.TRACE_TOPIC_MISSING})
    form = None
    if config.keys != "off":
        form = key_form(config.keys, (config.key_secret or "").encode())
    writer = TraceWriter(_way(plan, prepared), form, config.flush, LOGGER)
    writer.start()
    beside.callback(writer.close)
    sampling = Sampling(config.sample.ratio, config.sample.by)
    return Tracing(config, sampling, writer, application, host_address())


def trace_pages(plan: AppPlan) -> TracePages:
    """Return the journey pages for the admin address; raise ConfigError."""
    from window_consumer.trace.page import TracePages  # noqa: PLC0415 - an optional extra

    file = plan.config.admin.pipeline
    if file is None:
        return TracePages(None)
    # Imported late: a worker without the page does not need the table's library.
    from window_consumer.trace.journey_view import JourneyPages  # noqa: PLC0415 - as above

    return TracePages(JourneyPages.of_config(Path(plan.file).parent / file, plan.config.mask_rules))


def _way(plan: AppPlan, prepared: Prepared) -> TraceExporter:
    config, first = plan.config.trace, prepared.workers[0]
    properties = event_properties(plan.config, first.plan.config, "producer")

    def events(acks: Acks) -> EventWriter:
        needs = EventNeeds(CLIENT_ID, acks)
        return EventWriter(properties, needs, config.topic, first.log, prepared.oauth_token)

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
