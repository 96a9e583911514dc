"""The message trace on a real Kafka: the whole way of records, and what trouble makes of it."""

from __future__ import annotations

import json
import signal
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from ipaddress import ip_address
from pathlib import Path

import pytest

from tests.commands import DEADLINE_S, Commands, produce
from tests.conftest import ConsumerOf, MakeTopic
from tests.waiting import wait_until
from window_consumer import App, Fatal, Record, Skip, TracedProducer, TraceSettings
from window_consumer.app.connect import findings_of
from window_consumer.model.log_events import LogEvent
from window_consumer.testing.real_kafka import RealKafka
from window_consumer.trace.event import TraceEvent
from window_consumer.trace.event_batch import decoded
from window_consumer.trace.recording.spool import data_of

ReadTrace = Callable[[str], list[TraceEvent]]


@pytest.fixture
def read_trace(kafka: RealKafka, consumer_of: ConsumerOf) -> Iterator[ReadTrace]:
    """Reads on in a topic for events, and returns all that were read so far."""
    settings = {"bootstrap.servers": kafka.bootstrap, "group.id": f"reader-{time.monotonic_ns()}"}
    events: list[TraceEvent] = []
    with consumer_of(settings) as consumer:
        subscribed = False

        def read(topic: str) -> list[TraceEvent]:
            nonlocal subscribed
            if not subscribed:
                consumer.subscribe([topic])
                subscribed = True
            for message in consumer.consume(1000, 0.2):
                assert message.error() is None
                events.extend(decoded(message.value() or b""))
            return events

        yield read


ENDS = {
    "good": [("received", "ok"), ("processed", "ok")],
    "bad": [
        *(("received", "ok"), ("failed", "RETRIES_EXHAUSTED")),
        *(("received", "ok"), ("failed", "FATAL"), ("dead_lettered", "FATAL")),
    ],
    "old": [("received", "ok"), ("failed", "EXPIRED"), ("expired", "EXPIRED")],
    "other": [("received", "ok"), ("skipped", "ok")],
    "nobody": [("received", "ok"), ("filtered", "ok")],
    "again": [("received", "ok"), ("redriven", "ok"), ("processed", "ok")],
}
"""What becomes of the records of the test below, by their values."""

BESIDE = {("sent", "ok"), ("retried", "RETRIES_EXHAUSTED")}
"""Told when the ack has come, by when the record itself, or its copy, may have been received."""

TRACE, SPAN = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"


def test_the_way_of_a_record_is_reported_from_the_send_to_its_end_with_every_field(
    kafka: RealKafka, make_topic: MakeTopic, read_trace: ReadTrace, tmp_path: Path
) -> None:
    topic, events = make_topic("orders"), make_topic("trace")
    app = App("shop", version="7")

    @app.handler(topic, name="charge", group=f"g-{topic}", when=lambda it: it.value != b"nobody")
    def charge(order: Record) -> None:
        if order.value == b"bad":
            raise (Fatal if order.is_copy else ValueError)("no")
        if order.value == b"other":
            raise Skip

    config = tmp_path / "workers.yaml"
    retry = {"attempts": 1, "levels": ["100ms"]}
    text = {
        "kafka": {"bootstrap.servers": kafka.bootstrap, "client.id": "till"},
        "workers": {"charge": {"retry": retry, "otherwise": "skip", "ttl": "1h"}},
        "trace": {"sample": "100%", "topic": events, "keys": "raw", "flush": "50ms"},
    }
    config.write_text(json.dumps(text))
    settings = TraceSettings(topic=events, keys="raw", flush_s=0.05, app="web 3")
    client = {"bootstrap.servers": kafka.bootstrap, "client.id": "web"}
    producer = TracedProducer(client, trace=settings, tags="web,eu")
    began_us = time.time() * 1e6
    found: dict[str, list[TraceEvent]] = defaultdict(list)

    def is_all_reported() -> bool:
        found.clear()
        for event in sorted(read_trace(events), key=lambda event: event.time_us):
            found[event.key or ""].append(event)
        steps = {name: {event.step for event in reported} for name, reported in found.items()}
        ends = {name: {"sent", reported[-1][0]} for name, reported in ENDS.items()}
        ends["bad"].add("retried")
        return all(wanted <= steps.get(name, set()) for name, wanted in ends.items())

    running = app.start(config)
    try:
        for value in ENDS:
            headers = {"wc-id": f"id-{value}", "traceparent": f"00-{TRACE}-{SPAN}-01"}
            headers |= {"wc-redrives": "1"} if value == "again" else {}
            sent_ms = int(time.time() * 1000) - (7_200_000 if value == "old" else 0)
            producer.produce(
                topic, value.encode(), key=value, headers=headers, timestamp=sent_ms, partition=0
            )
        assert producer.flush(DEADLINE_S) == 0
        producer.close()
        wait_until(is_all_reported, DEADLINE_S, "all steps are told")
    finally:
        running.stop()
        running.wait()
    for value, reported in found.items():
        steps = [(event.step, event.status) for event in reported]
        assert [step for step in steps if step not in BESIDE] == ENDS[value]
        assert set(steps) - set(ENDS[value]) == (BESIDE if value == "bad" else {("sent", "ok")})
        for event in reported:
            check_fields(event, value)
            assert event.orig_topic == topic
            assert (event.topic == topic) == (event.offset == event.orig_offset)
            assert began_us - 1e6 <= event.time_us <= time.time() * 1e6 + 1e6
            assert event.cluster == kafka.bootstrap
            assert event.group == (None if event.role == "producer" else f"g-{topic}")
    last = found["bad"][-1]
    assert (last.attempt, last.topic) == (2, f"g-{topic}.{topic}.retry.100ms")
    reported = [event for each in found.values() for event in each]
    assert len({event.event_id for event in reported}) == len(reported)


def check_fields(event: TraceEvent, value: str) -> None:
    """Check what is the same on each run."""
    is_producer = event.role == "producer"
    assert (event.record_id, event.root_id, event.tags) == (f"id-{value}", f"id-{value}", "web,eu")
    assert (event.trace_id, event.span_id) == (TRACE, SPAN)
    assert (event.orig_partition, event.partition) == (0, 0)
    assert event.orig_offset == list(ENDS).index(value)
    assert (event.client_id, event.app) == (("web", "web 3") if is_producer else ("till", "shop 7"))
    assert str(ip_address(event.host or "")) == event.host
    assert (event.dropped, event.sample) == (0, 1.0)
    assert event.worker == (None if is_producer else "charge")
    is_new = event.step in {"received", "redriven"}
    has_none = is_producer or is_new or event.step == "filtered"
    assert event.handler == (None if has_none else "charge")
    assert (event.duration_us is None) == is_new
    assert (event.duration_us or 0) >= 0
    assert (event.attempt is None) == (is_producer or is_new)
    has_failed = event.step in {"failed", "retried", "dead_lettered", "expired"}
    assert bool(event.error_class) == bool(event.error_fingerprint) == has_failed


SLOW_SHOP = """
import time
from window_consumer import App, Record

app = App("shop")

@app.handler(name="charge")
def charge(order: Record) -> None:
    time.sleep(0.002)
"""


def test_what_was_flushed_is_reported_after_kill_9_once_by_its_id(
    kafka: RealKafka,
    commands: Commands,
    make_topic: MakeTopic,
    read_trace: ReadTrace,
    unique_name: Callable[[str], str],
) -> None:
    topic, events = make_topic("orders"), make_topic("trace")
    spool = commands.directory / "spool"
    with TracedProducer({"bootstrap.servers": kafka.bootstrap}, trace=None) as producer:
        for number in range(20_000):  # work for a minute: it does not end before it is looked at
            producer.produce(topic, b"v", headers={"wc-id": f"id-{number}"})
            producer.poll(0)
        assert producer.flush(DEADLINE_S) == 0
    trace = {"sample": "100%", "topic": events, "flush": "20ms", "way": "spool"}
    commands.application(SLOW_SHOP)

    def configure(group: str) -> None:
        worker = {"topics": [topic], "group": group, "concurrency": 1}
        kafka_section = {"bootstrap.servers": kafka.bootstrap}
        text = {"kafka": kafka_section, "workers": {"charge": worker}}
        commands.configure({**text, "trace": {**trace, "directory": "spool"}})

    configure(unique_name("shop"))
    killed = commands.start("run", "shop:app")
    killed.wait_for_event(LogEvent.PARTITIONS_ASSIGNED, partitions=1)
    flushed: dict[str, TraceEvent] = {}
    deadline = time.monotonic() + DEADLINE_S
    while not flushed:
        assert time.monotonic() < deadline, "nothing was flushed"
        killed.signal(signal.SIGCONT)
        time.sleep(0.05)  # a moment to go on in
        killed.signal(signal.SIGSTOP)
        flushed = {event.event_id: event for event in _in(spool)}
    killed.signal(signal.SIGKILL)
    killed.process.wait(DEADLINE_S)
    # Of another group: it need not wait until Kafka gives the killed one up.
    configure(unique_name("others"))
    commands.start("run", "shop:app").wait_for_event(LogEvent.PARTITIONS_ASSIGNED, partitions=1)
    found: dict[str, TraceEvent] = {}

    def is_all_there() -> bool:
        for event in read_trace(events):
            assert found.setdefault(event.event_id, event) == event
        return flushed.keys() <= found.keys()

    wait_until(is_all_there, DEADLINE_S, "what was flushed is told")
    assert flushed.items() <= found.items()
    assert len(flushed) > 1


def _in(spool: Path) -> Iterator[TraceEvent]:
    for path in spool.glob("*.spool"):
        for data in map(data_of, path.read_bytes().splitlines()):
            yield from decoded(data) if data is not None else ()


def test_without_its_topic_workers_run_and_check_says_so(
    kafka: RealKafka,
    make_topic: MakeTopic,
    unique_name: Callable[[str], str],
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
) -> None:
    topic, missing = make_topic("orders"), unique_name("trace")
    app = App("shop")
    done: list[Record] = []

    @app.handler(topic, name="charge", group=f"g-{topic}", retry={"when_spent": "drop"})
    def charge(order: Record) -> None:
        done.append(order)

    def warnings(*, create: bool) -> str:
        text = {
            "kafka": {"bootstrap.servers": kafka.bootstrap},
            "workers": {"charge": {}},
            "topics": {"create": create},
            "trace": {"sample": "100%", "topic": missing, "flush": "20ms"},
        }
        (tmp_path / "workers.yaml").write_text(json.dumps(text))
        (found,) = findings_of(app, app.plan(tmp_path / "workers.yaml"), DEADLINE_S)
        return "".join(found.warnings)

    assert warnings(create=True) == ""
    said = f"trace: there is no topic {missing} and topics.create is false"
    assert said in warnings(create=False)
    running = app.start(tmp_path / "workers.yaml")
    try:
        assert said in caplog.text
        produce(kafka.bootstrap, topic, b"1")
        wait_until(lambda: bool(done), DEADLINE_S, "the record is handled")
    finally:
        running.stop()
        running.wait()
    assert running.failure is None
