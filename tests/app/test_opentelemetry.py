"""What goes to OpenTelemetry is what the configuration says."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest
from opentelemetry.trace import Tracer

from tests.telemetry.otel.memory import SAMPLED, Memory, record
from window_consumer import App, Record
from window_consumer.metrics.catalog import METRICS
from window_consumer.metrics.otel.feature import metering, spanning
from window_consumer.metrics.otel.instruments import Figures
from window_consumer.metrics.otel.sdk import Sdk
from window_consumer.plan.app_plan import AppPlan
from window_consumer.runtime.error_report import ErrorReports
from window_consumer.runtime.figures.measures import MeasuredWorkers
from window_consumer.runtime.figures.metric import Metric


class Recording(Sdk):
    """An SDK of which somebody has set up everything, and nothing is global."""

    def __init__(self) -> None:
        super().__init__()
        self.memory = Memory()

    def tracer(self) -> Tracer | None:
        return self.memory.spans.tracer

    def measure(self, listed: Iterable[Metric]) -> Figures | None:
        del listed
        return self.figures


def planned(directory: Path, section: str) -> AppPlan:
    app = App("shop")

    @app.handler("orders", group="shop-charge", kafka={"client.id": "till"})
    def charge(_order: Record) -> None: ...

    file = directory / "workers.yaml"
    file.write_text(
        "kafka: {bootstrap.servers: 'localhost:9092'}\n"
        "workers: {charge: {}}\n"
        f"opentelemetry: {section}\n"
    )
    return app.plan(file)


def test_spans_and_metrics_can_be_switched_off(tmp_path: Path) -> None:
    sdk = Recording()
    plan = planned(tmp_path, "{spans: off, metrics: off}")
    with spanning("shop", plan, sdk) as spans:
        assert spans is None
    with metering(plan, MeasuredWorkers({"process": "1"}), METRICS, sdk):
        assert sdk.figures.labels == {}


def test_metrics_go_there_with_the_labels_of_the_process(tmp_path: Path) -> None:
    sdk = Recording()
    workers = MeasuredWorkers({"process": "1"})
    with metering(planned(tmp_path, "{}"), workers, METRICS, sdk):
        assert sdk.figures.labels == {"process": "1"}
        assert sdk.figures.now() == []  # no worker runs yet


def test_spans_name_the_worker_and_are_counted_among_its_metrics(tmp_path: Path) -> None:
    sdk = Recording()
    plan = planned(tmp_path, "{spans_per_second: 1}")
    with spanning("shop", plan, sdk) as spans:
        assert spans is not None
        assert spans.figures_of("charge") is None
        calls = spans.layer_of(plan.workers[0]).spans_of(ErrorReports())
        for offset in range(3):
            span = calls.of_record(record(offset, headers=SAMPLED))
            if span is not None:
                span.leave(None)
    figures = spans.figures_of("charge")
    assert figures is not None
    assert figures.made == len(sdk.memory.ended) > 0
    assert figures.dropped == {"limit": 3 - figures.made, "failed": 0}
    attributes: Any = sdk.memory.ended[0].attributes
    assert attributes["window_consumer.worker"] == "charge"
    assert attributes["messaging.consumer.group.name"] == "shop-charge"
    assert attributes["messaging.client.id"] == "till"


@pytest.mark.parametrize(("records", "chosen"), [("0%", False), ("100%", True)])
def test_a_share_of_the_records_is_chosen_without_a_producer(
    tmp_path: Path, records: str, *, chosen: bool
) -> None:
    plan = planned(tmp_path, f"{{records: {records}}}")
    with spanning("shop", plan, Recording()) as spans:
        assert spans is not None
        calls = spans.layer_of(plan.workers[0]).spans_of(ErrorReports())
        assert (calls.of_record(record(1)) is not None) == chosen


THEIRS = """
import sys
from pathlib import Path

from opentelemetry import metrics, trace
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from tests.waiting import wait_until
from window_consumer import App, Produce, Producer, Record
from window_consumer.kafka.embedded import EmbeddedBroker

spans, reader = InMemorySpanExporter(), InMemoryMetricReader()
theirs = TracerProvider(), MeterProvider([reader])
theirs[0].add_span_processor(SimpleSpanProcessor(spans))
trace.set_tracer_provider(theirs[0])
metrics.set_meter_provider(theirs[1])
app, done = App("shop"), []


@app.handler("orders", group="shop")
def charge(order: Record) -> Produce | None:
    with trace.get_tracer("shop").start_as_current_span("insert"):
        done.append(order)
        if order.offset == 0:
            producer.send("sent", value=b"1").result(60)
            return Produce("returned", value=b"1")
    return None


def exported() -> dict:
    data = reader.get_metrics_data()
    scopes = [] if data is None else data.resource_metrics[0].scope_metrics
    return {each.name: each.data.data_points for scope in scopes for each in scope.metrics}


with EmbeddedBroker() as broker:
    for topic in ("orders", "sent", "returned"):
        broker.create_topic(topic, 1)
    producer = Producer({"bootstrap.servers": broker.bootstrap})
    trace_id = "0af7651916cd43dd8448eb211c80319c"
    parent = f"00-{trace_id}-b7ad6b7169203331-01".encode()
    broker.produce("orders", b"1", headers=[("traceparent", parent)])
    file = Path(sys.argv[1]) / "workers.yaml"
    file.write_text(
        f"kafka: {{bootstrap.servers: '{broker.bootstrap}'}}\\nworkers: {{charge: {{}}}}\\n"
        "opentelemetry: {spans_per_second: 1}\\n"
    )
    with app.start(file) as running:
        wait_until(lambda: len(spans.get_finished_spans()) >= 3, 60, "the spans are there")
        (consumed,) = exported()["messaging.client.consumed.messages"]
        for _ in range(20):
            broker.produce("orders", b"more", headers=[("traceparent", parent)])
        wait_until(lambda: len(done) == 21, 60, "the others are done")
    assert running.failure is None
    producer.close()
    made = {}
    for topic in ("sent", "returned"):
        (record,) = broker.read_all(topic)
        made[topic] = dict(record.headers())["traceparent"].decode().split("-")[1:3]
# The first of each name: on a slow machine, calls of a later second have spans, too.
by_name = {span.name: span for span in reversed(spans.get_finished_spans()) if span.parent}
assert {f"{span.context.trace_id:032x}" for span in by_name.values()} == {trace_id}
call, insert = by_name["process orders"], by_name["insert"]
assert insert.parent.span_id == call.context.span_id
assert made["sent"] == [trace_id, f"{insert.context.span_id:016x}"]
assert made["returned"] == [trace_id, f"{call.context.span_id:016x}"]
assert consumed.value == 1
(processed,) = exported()["window_consumer.records.processed"]
assert dict(processed.attributes) == {"worker": "charge"}
assert "messaging.process.duration" not in exported()
dropped = exported()["window_consumer.telemetry.spans.dropped"]
why = {point.attributes["reason"]: point.value for point in dropped}
assert why["limit"] > 5, why
assert (trace.get_tracer_provider(), metrics.get_meter_provider()) == theirs
assert trace.get_tracer("shop").start_span("later").is_recording(), "theirs go on"
"""


def test_a_program_that_has_set_up_opentelemetry_itself_gets_it_all_but_the_histogram(
    tmp_path: Path,
) -> None:
    clean = {name: value for name, value in os.environ.items() if not name.startswith("OTEL_")}
    command = [sys.executable, "-c", THEIRS, str(tmp_path)]  # it asserts by itself
    ended = subprocess.run(
        command, env=clean, timeout=60, check=False, capture_output=True, text=True
    )
    assert ended.returncode == 0, ended.stderr
