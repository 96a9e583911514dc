"""From a consumer with faults to the whole way of a record, through Kafka, Spark and DuckDB."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import attrs
import pytest

from tests.commands import DEADLINE_S, Commands
from tests.conftest import MakeTopic
from tests.waiting import wait_until
from window_consumer import App, Record, TracedProducer, TraceSettings
from window_consumer.spark import jobs
from window_consumer.spark.plan import PipelinePlan
from window_consumer.spark.wire import load_pipeline
from window_consumer.testing.real_kafka import RealKafka
from window_consumer.trace.event_tail import EventTail
from window_consumer.trace.journey import Journey
from window_consumer.trace.lookup import Journeys
from window_consumer.trace.query import TraceQuery
from window_consumer.trace.spark.schema import TRACE

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def configured(directory: Path, bootstrap: str, events: str) -> PipelinePlan:
    text = {
        "kafka": {"bootstrap.servers": bootstrap},
        "directory": "it has a name",
        "trace": {"topic": events},
    }
    file = directory / "pipeline.yaml"
    file.write_text(json.dumps(text))
    return load_pipeline(file)


def index(spark: SparkSession, plan: PipelinePlan) -> None:
    query = jobs.start(spark, plan, jobs.JOBS["trace"])
    query.wait()


@attrs.frozen
class Shop:
    """An application whose handler fails for bad orders; everything is traced."""

    topic: str
    events: str
    workers: Path
    bootstrap: str

    @contextmanager
    def running(self, *names: str) -> Iterator[None]:
        """Sell to those of these names, as long as the block lasts."""
        app = App("shop", version="7")

        @app.handler(self.topic, name="charge", group=self.group)
        def charge(order: Record) -> None:
            if order.value == b"bad":
                raise ValueError("no")

        settings = TraceSettings(topic=self.events, keys="raw", flush_s=0.05)
        client = {"bootstrap.servers": self.bootstrap}
        producer = TracedProducer(client, trace=settings)
        running = app.start(self.workers)
        try:
            for name in names:
                value = name.rstrip("0123456789").encode()
                producer.produce(self.topic, value, key=name, headers={"wc-id": name})
            assert producer.flush(DEADLINE_S) == 0
            yield
        finally:
            producer.close()
            running.stop()
            running.wait()

    @property
    def group(self) -> str:
        return f"g-{self.topic}"


@pytest.fixture
def shop(kafka: RealKafka, make_topic: MakeTopic, tmp_path: Path) -> Shop:
    topic, events = make_topic("orders", 2), make_topic("trace", 2)
    retry = {"attempts": 1, "levels": ["100ms", "200ms"], "on_failure": "overtake"}
    text = {
        "kafka": {"bootstrap.servers": kafka.bootstrap},
        "workers": {"charge": {"retry": retry}},
        "trace": {"sample": "100%", "topic": events, "keys": "raw", "flush": "50ms"},
    }
    workers = tmp_path / "workers.yaml"
    workers.write_text(json.dumps(text))
    return Shop(topic, events, workers, kafka.bootstrap)


def journey_of(journeys: Journeys, record: str) -> Journey | None:
    return Journey.of(journeys.of(record).events)


def test_a_record_of_a_moment_ago_is_found_and_stays_found_once(
    shop: Shop, spark: SparkSession, commands: Commands
) -> None:
    """Its way over two retry levels into the dead letters, planted by a handler that fails."""
    plan = configured(commands.directory, shop.bootstrap, shop.events)
    TRACE.make(spark, plan)  # nothing is in it yet
    # A person waits so long for a Kafka that is slow.
    patient = partial(EventTail, answer_s=DEADLINE_S, most_s=DEADLINE_S)
    journeys = Journeys(plan, make_tail=patient)

    def is_reported(record: str, end: str) -> bool:
        found = journey_of(journeys, record)
        ways = () if found is None else found.passages[0].ways
        return bool(found and found.passages[0].sent and ways) and ways[0].end == end

    with shop.running("bad1", "good2"):
        wait_until(lambda: is_reported("bad1", "dead_lettered"), DEADLINE_S, "it is a dead letter")
        wait_until(lambda: is_reported("good2", "processed"), DEADLINE_S, "the other one is done")
    answer = journeys.of("bad1")
    assert answer.notes == ()
    journey = Journey.of(answer.events)
    assert journey is not None
    assert not journey.has_skew
    (way,) = journey.passages[0].ways
    levels = [f"{shop.group}.{shop.topic}.retry.{each}" for each in ("100ms", "200ms")]
    ends = ["retried", "retried", "dead_lettered"]
    assert [(hop.place[0], [stop.event.step for stop in hop.stops]) for hop in way.hops] == [
        (topic, ["received", "failed", end])
        for topic, end in zip([shop.topic, *levels], ends, strict=True)
    ]
    key = TraceQuery(key="bad1", step="failed")
    from_kafka = journeys.find(key, 10).events
    assert [event.attempt for event in from_kafka] == [1, 2, 3]
    assert journeys.find(key, 2).events == from_kafka[1:]
    only = Journeys(plan, indexed_only=True)
    assert only.of("bad1").events == ()
    index(spark, plan)
    only.refresh()
    assert only.of("bad1") == answer  # the same from the table
    assert journeys.of("bad1") == answer  # as the table was: with the end of the topic
    journeys.refresh()
    assert journeys.of("bad1") == answer
    shown = commands.run("trace", "show", "bad1")
    assert shown.code == 0
    for word in ("dead_lettered", "attempt 3", "ValueError", levels[1]):
        assert word in shown.out
    configured(commands.directory, "127.0.0.1:1", shop.events)
    away = commands.run("trace", "show", "bad1", "--json")
    assert len(away.out.splitlines()) == len(answer.events)
    assert shop.events in away.err
