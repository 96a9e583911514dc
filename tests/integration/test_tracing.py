"""The message trace on a real Kafka: the whole way of records, and what trouble makes of it."""

from __future__ import annotations

import json
import signal
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.commands import PATIENCE_S, Commands, produce
from tests.conftest import ConsumerOf, MakeTopic
from tests.integration.members import wait_until
from window_consumer import App, Fatal, Record, TracedProducer, TraceSettings
from window_consumer.app.connect import findings_of
from window_consumer.model.trace_batch import decoded
from window_consumer.model.trace_event import TraceEvent
from window_consumer.telemetry.trace.spool import batches_in
from window_consumer.testing.real_kafka import RealKafka

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


def test_the_way_of_a_record_is_told_from_the_send_to_the_dead_letters(
    kafka: RealKafka, make_topic: MakeTopic, read_trace: ReadTrace, tmp_path: Path
) -> None:
    topic, events = make_topic("orders"), make_topic("trace")
    app = App("shop", version="7")

    @app.handler(topic, name="charge", group=f"g-{topic}")
    def charge(order: Record) -> None:
        if order.value == b"bad":
            raise (Fatal if order.is_copy else ValueError)("no")

    config = tmp_path / "workers.yaml"
    retry = {"attempts": 1, "levels": ["100ms"]}
    text = {
        "kafka": {"bootstrap.servers": kafka.bootstrap},
        "workers": {"charge": {"retry": retry}},
        "trace": {"sample": "100%", "topic": events, "keys": "raw", "flush": "50ms"},
    }
    config.write_text(json.dumps(text))
    settings = TraceSettings(topic=events, keys="raw", flush_s=0.05)
    producer = TracedProducer({"bootstrap.servers": kafka.bootstrap}, trace=settings)
    running = app.start(config)
    try:
        for value in (b"good", b"bad"):
            producer.produce(topic, value, key=value, headers={"wc-id": f"id-{value.decode()}"})
        assert producer.flush(PATIENCE_S) == 0
        producer.close()
        steps: dict[str | None, list[tuple[str, str]]] = defaultdict(list)
        wait_until(lambda: len(read_trace(events)) >= 10, PATIENCE_S, "all steps are told")
    finally:
        running.stop()
        running.wait()
    for event in sorted(read_trace(events), key=lambda event: event.time_us):
        steps[event.record_id].append((event.step, event.status))
        assert (event.orig_topic, event.key) == (topic, (event.record_id or "")[3:])
    sent = ("sent", "ok")
    assert sent in steps["id-good"]  # its ack may come after the record itself
    assert [step for step in steps["id-good"] if step != sent] == [
        ("received", "ok"),
        ("processed", "ok"),
    ]
    assert [step for step in steps["id-bad"] if step != sent] == [
        ("received", "ok"),
        ("failed", "RETRIES_EXHAUSTED"),
        ("retried", "RETRIES_EXHAUSTED"),
        ("received", "ok"),
        ("failed", "FATAL"),
        ("dead_lettered", "FATAL"),
    ]
    last = next(event for event in read_trace(events) if event.step == "dead_lettered")
    assert (last.attempt, last.orig_offset, last.error_class) == (
        2,
        1,
        "window_consumer.model.errors.Fatal",
    )


SLOW_SHOP = """
import time
from window_consumer import App, Record

app = App("shop")

@app.handler(name="charge")
def charge(order: Record) -> None:
    time.sleep(0.002)
"""


def test_what_was_flushed_is_told_after_kill_9_once_by_its_id(
    kafka: RealKafka,
    commands: Commands,
    make_topic: MakeTopic,
    read_trace: ReadTrace,
    unique_name: Callable[[str], str],
) -> None:
    topic, events = make_topic("orders"), make_topic("trace")
    spool = commands.directory / "spool"
    producer = TracedProducer({"bootstrap.servers": kafka.bootstrap}, trace=None)
    for number in range(1000):
        producer.produce(topic, b"v", headers={"wc-id": f"id-{number}"})
    assert producer.flush(PATIENCE_S) == 0
    trace = {"sample": "100%", "topic": events, "flush": "20ms", "way": "spool"}
    commands.application(SLOW_SHOP)

    def configure(group: str) -> None:
        worker = {"topics": [topic], "group": group, "concurrency": 1}
        kafka_section = {"bootstrap.servers": kafka.bootstrap}
        text = {"kafka": kafka_section, "workers": {"charge": worker}}
        commands.configure({**text, "trace": {**trace, "directory": "spool"}})

    configure(unique_name("shop"))
    killed = commands.start("run", "shop:app")
    killed.wait_for("reads 1 partition")
    flushed: dict[str, TraceEvent] = {}
    while not flushed:
        killed.signal(signal.SIGCONT)
        time.sleep(0.05)  # a moment to go on in
        killed.signal(signal.SIGSTOP)
        flushed = {event.event_id: event for event in _in(spool)}
    killed.signal(signal.SIGKILL)
    killed.process.wait(PATIENCE_S)
    # Of another group: it need not wait until Kafka gives the killed one up.
    configure(unique_name("others"))
    commands.start("run", "shop:app").wait_for("reads 1 partition")
    found: dict[str, TraceEvent] = {}

    def is_all_there() -> bool:
        for event in read_trace(events):
            assert found.setdefault(event.event_id, event) == event
        return flushed.keys() <= found.keys()

    wait_until(is_all_there, PATIENCE_S, "what was flushed is told")
    assert flushed.items() <= found.items()
    assert len(flushed) > 1


def _in(spool: Path) -> Iterator[TraceEvent]:
    for path in spool.glob("*.spool"):
        for data in batches_in(path):
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
        (found,) = findings_of(app, app.plan(tmp_path / "workers.yaml"), PATIENCE_S)
        return "".join(found.warnings)

    assert warnings(create=True) == ""
    said = f"trace: there is no topic {missing} and topics.create is false"
    assert said in warnings(create=False)
    running = app.start(tmp_path / "workers.yaml")
    try:
        assert said in caplog.text
        produce(kafka.bootstrap, topic, b"1")
        wait_until(lambda: bool(done), PATIENCE_S, "the record is handled")
    finally:
        running.stop()
        running.wait()
    assert running.failure is None
