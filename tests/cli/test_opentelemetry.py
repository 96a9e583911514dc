"""Traces and metrics of a worker as a collector gets them, by the OTEL_* variables alone."""

from __future__ import annotations

import json
from time import monotonic

import pytest

from tests.commands import Commands, kafka_of
from tests.telemetry.collector import Collector, GrpcCollector
from window_consumer.kafka.embedded import EmbeddedBroker
from window_consumer.model.log_events import LogEvent

SHOP = """
import logging

from window_consumer import App, Record

app = App("shop")
log = logging.getLogger("shop")


@app.handler("orders", group="shop", retry={"attempts": 2, "backoff": "10ms..20ms"})
def charge(order: Record) -> None:
    log.warning("charging %s", order.text())
    if order.text() == "broken" or (order.text() == "late" and order.attempt < 4):
        raise ValueError(order.text())


@app.batch_handler("parcels", group="shop-parcels", max_wait="10ms", min_records=3)
def send(parcels: list[Record]) -> None:
    log.warning("sending %d", len(parcels))


@app.handler("letters", group="shop-letters")
async def write(letter: Record) -> None:
    log.warning("writing %s", letter.text())


@app.handler("sums", group="shop-sums", pool="processes", concurrency=1)
def add(sums: Record) -> None:
    log.warning("adding %s", sums.text())
"""

TRACE = "0af7651916cd43dd8448eb211c80319c"
SENT_BY = "b7ad6b7169203331"
SAMPLED = [("traceparent", f"00-{TRACE}-{SENT_BY}-01".encode())]
UNSAMPLED = [("traceparent", b"00-1af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-00")]


@pytest.fixture
def shop(commands: Commands, embedded: EmbeddedBroker) -> Commands:
    for topic in ("orders", "parcels", "letters", "sums"):
        embedded.create_topic(topic, 1)
    commands.application(SHOP)
    levels = {"levels": ["100ms"], "attempts_per_level": 2}
    workers = {"charge": {"retry": levels}, "send": {}, "write": {}, "add": {}}
    commands.configure({"kafka": kafka_of(embedded), "workers": workers})
    return commands


OTHERS = {"process orders", "process shop.orders.retry.100ms"}
COUNTED = {
    "messaging.client.consumed.messages": 4,
    "window_consumer.records.processed": 2,
    "messaging.process.duration": 6,
}


def counted(collector: Collector, name: str) -> int:
    """Return what a metric has come to: a figure, or how many a histogram counts."""
    points = collector.metrics.get(name)
    if not points:
        return 0
    figure = points[0][1]
    return sum(figure[0]) if isinstance(figure, tuple) else int(figure)


def test_a_record_stays_in_its_producers_trace_on_all_of_its_way(
    shop: Commands, embedded: EmbeddedBroker
) -> None:
    with Collector() as collector:
        json_lines = ("--only", "charge", "--log-format", "json")
        often = {**collector.env, "OTEL_METRIC_EXPORT_INTERVAL": "200"}
        command = shop.start("run", "shop:app", *json_lines, env=often)
        embedded.produce("orders", b"broken", headers=SAMPLED)
        embedded.produce("orders", b"plain")
        embedded.produce("orders", b"other", headers=UNSAMPLED)
        # All of it before the end, at which a collector is waited for but briefly.
        collector.wait_for(lambda: len([s for s in collector.spans if s.trace == TRACE]) >= 6)
        collector.wait_for(lambda: {s.name for s in collector.spans if s.trace != TRACE} >= OTHERS)
        for name, most in COUNTED.items():
            collector.wait_for(lambda name=name, most=most: counted(collector, name) >= most)  # type: ignore[misc] # bound in the loop
        assert command.stop().code == 0
    in_trace = sorted((s for s in collector.spans if s.trace == TRACE), key=lambda s: s.name)
    assert {span.parent for span in in_trace} == {SENT_BY}
    assert [(span.name, span.failed) for span in in_trace] == [
        ("process orders", True),
        ("process orders", True),
        ("process shop.orders.retry.100ms", True),
        ("process shop.orders.retry.100ms", True),
        ("send shop.orders.dlq", False),
        ("send shop.orders.retry.100ms", False),
    ]
    calls = sorted(
        (span.attributes["window_consumer.attempt"], span.text)
        for span in in_trace
        if span.name.startswith("process")
    )
    assert calls == [(attempt, "broken") for attempt in (1, 2, 3, 4)]
    ((name, about),) = in_trace[0].events
    assert (name, about["exception.type"]) == ("exception", "ValueError")
    assert "in charge" in about["exception.stacktrace"]
    assert "window_consumer" not in about["exception.stacktrace"]
    others = [span for span in collector.spans if span.trace != TRACE]
    assert {span.name for span in others} == OTHERS
    assert all("messaging.batch.message_count" in span.attributes for span in others)
    assert (TRACE,) in {span.links for span in others}
    lines = [json.loads(line) for line in command.said.splitlines() if "charging" in line]
    traces = {line["message"]: line["trace_id"] for line in lines if "trace_id" in line}
    assert traces == {"charging broken": TRACE, "charging other": UNSAMPLED[0][1][3:35].decode()}
    about, consumed = collector.metrics["messaging.client.consumed.messages"][0]
    assert (about["messaging.consumer.group.name"], consumed) == ("shop", 4)
    assert collector.metrics["window_consumer.records.processed"] == [({"worker": "charge"}, 2)]
    assert sum(collector.metrics["messaging.process.duration"][0][1][0]) == 6
    spans = {line["span_id"] for line in lines if line["message"] == "charging broken"}
    assert spans == {span.span for span in in_trace if span.name.startswith("process")}


def test_batches_coroutines_and_child_processes_have_spans_that_are_current(
    shop: Commands, embedded: EmbeddedBroker
) -> None:
    with GrpcCollector() as collector:
        json_lines = ("--only", "send", "--only", "write", "--only", "add", "--log-format", "json")
        # Whatever comes, comes because the processes send it at their end.
        env = {**collector.env, "OTEL_BSP_SCHEDULE_DELAY": "600000"}
        command = shop.start("run", "shop:app", *json_lines, env=env)
        for topic in ("parcels", "letters", "sums"):
            for value in (b"one", b"two"):
                embedded.produce(topic, value, headers=SAMPLED)
        embedded.produce("parcels", b"three")
        for words in ("sending", "writing two", "adding two"):
            command.wait_for(words)
        assert command.stop().code == 0
    for topic in ("parcels", "letters", "sums"):
        in_trace = [s for s in collector.named(f"process {topic}") if s.trace == TRACE]
        assert {span.parent for span in in_trace} == {SENT_BY}
        assert [span.attributes["messaging.kafka.offset"] for span in in_trace] == [0, 1]
    current = {span.span for span in collector.spans}
    lines = [json.loads(line) for line in command.said.splitlines() if "ing " in line]
    said = [line for line in lines if line["logger"] == "shop"]
    assert {line["span_id"] for line in said} <= current
    (batch,) = [s for s in collector.named("process parcels") if s.trace != TRACE]
    assert batch.attributes["messaging.batch.message_count"] == 3
    assert batch.links == (TRACE, TRACE)
    sent = collector.metrics["window_consumer.records.processed"]
    assert {about["worker"]: count for about, count in sent} == {"send": 3, "write": 2, "add": 2}
    names = {resource["service.name"] for resource in collector.resources}
    assert names == {"shop"}


def test_a_collector_that_hangs_does_not_delay_the_end(
    shop: Commands, embedded: EmbeddedBroker
) -> None:
    with Collector(hangs=True) as collector, GrpcCollector(hangs=True) as other:
        metrics = {
            "OTEL_EXPORTER_OTLP_METRICS_PROTOCOL": "grpc",
            "OTEL_EXPORTER_OTLP_METRICS_ENDPOINT": other.env["OTEL_EXPORTER_OTLP_ENDPOINT"],
            "OTEL_METRIC_EXPORT_INTERVAL": "200",
            "OTEL_EXPORTER_OTLP_TIMEOUT": "600",
        }
        env = {**collector.env, **metrics}
        command = shop.start("run", "shop:app", "--only", "charge", env=env)
        other.wait_for(lambda: other.requests)
        embedded.produce("orders", b"one", headers=SAMPLED)
        collector.wait_for(lambda: collector.requests)
        embedded.produce("orders", b"two")
        command.wait_for("charging two")
        began = monotonic()
        ended = command.stop()
        seconds = monotonic() - began
    assert seconds < 10  # the exporters' own patience is ten minutes
    assert ended.code == 0
    assert ended.lines_of(LogEvent.OTEL_FLUSH_OVERRUN)
