"""A backfill through the whole depth: Kafka, Spark, the handlers, the dead letters, the tables."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from attrs import define, evolve
from confluent_kafka import Producer

from tests.backfill.plans import configuration
from tests.backfill.shop import app
from tests.golden_texts import Golden
from tests.logged import events_in
from tests.pipeline.gates import DEADLINE_S
from tests.raw_records import write_raw
from tests.reading import reader_of
from tests.waiting import wait_until
from window_consumer.model import headers as names
from window_consumer.model.errors import RunError, UsageError
from window_consumer.model.log_events import LogEvent
from window_consumer.model.offset_ranges import Span
from window_consumer.model.record import Message, TopicPartition
from window_consumer.spark.backfill import planning, ranges
from window_consumer.spark.backfill.held_records import AtEnd
from window_consumer.testing.real_kafka import RealKafka

if TYPE_CHECKING:
    from pyspark.sql import Row, SparkSession

    from window_consumer.spark.backfill.backlog import BackfillProgress, BackfillRun

PARTITIONS = 3
NEW_YEAR = 1_767_225_600_000
HOUR_MS = 3_600_000


@define
class Place:
    """A topic with records, and what a backfill of it needs."""

    bootstrap: str
    topic: str
    directory: Path

    def produce(self, count: int, value_of: Callable[[int], bytes] = lambda _n: b"fine") -> None:
        producer = Producer({"bootstrap.servers": self.bootstrap})
        for number in range(count):
            producer.produce(
                self.topic,
                key=b"k%d" % (number % 10),
                value=value_of(number),
                headers=[("mine", b"%d" % number), ("mine", None)],
                partition=number % PARTITIONS,
            )
        assert producer.flush(DEADLINE_S) == 0

    def config(self) -> Path:
        file = self.directory / "workers.yaml"
        retry = "retry: {attempts: 2, backoff: 10ms..20ms, levels: [1h]}"
        file.write_text(configuration(self.bootstrap, self.topic, retry, "failing"), "utf-8")
        return file

    def chosen(self, worker: str, *overrides: str) -> planning.ChosenHandler:
        plan = app.plan(self.config(), overrides=overrides)
        return planning.choose(plan, self.topic, name=worker)

    def backlog(
        self, spark: SparkSession, worker: str, overrides: Sequence[str] = (), **more: Any
    ) -> BackfillRun:
        from window_consumer.spark.backfill import backlog  # noqa: PLC0415 - it needs Spark
        from window_consumer.spark.backfill.chunk_log import BackfillIdentity, BackfillLedger  # noqa: PLC0415 - as above

        chosen = self.chosen(worker, *overrides)
        about = BackfillIdentity("one", worker, chosen.worker.config.group, self.topic, None, "all")
        given = {
            "session": spark,
            "ledger": BackfillLedger(spark, str(self.directory / "results")),
            "about": about,
            "plan": planning.worker_plan(app, chosen),
            "consumer": chosen.worker.consumer,
            "chunk_records": 50,
        }
        return backlog.BackfillRun(**{**given, **more})

    def spans(self) -> dict[int, Span]:
        with reader_of(self.client) as reader:
            return ranges.resolve(ranges.WantedRange(self.topic), reader)

    @property
    def client(self) -> dict[str, Any]:
        return {"bootstrap.servers": self.bootstrap}

    def dead_letters(self) -> list[Message]:
        with reader_of(self.client) as reader:
            name = f"shop-failing.{self.topic}.dlq"
            found = reader.read(reader.spans(name))
            return [message for messages in found for message in messages]

    def rows(self, spark: SparkSession) -> list[Row]:
        path = str(self.directory / "results" / "tables" / "results")
        return spark.read.format("delta").load(path).orderBy("partition", "offset").collect()


@pytest.fixture
def place(kafka: RealKafka, make_topic: Callable[..., str], tmp_path: Path) -> Place:
    return Place(kafka.bootstrap, make_topic("orders", PARTITIONS), tmp_path)


def reported(message: Message) -> tuple[Any, ...]:
    """Return all of a dead letter but what has to differ: where it lies, and the times."""
    times = (names.FIRST_FAILURE, names.LAST_FAILURE)
    headers = [(name, value) for name, value in message.headers() or () if name not in times]
    return message.key(), message.value(), str(headers), message.partition()


def test_dead_letters_are_those_of_the_consumer(spark: SparkSession, place: Place) -> None:
    place.produce(60, lambda number: b"bad" if number % 20 == 7 else b"fine")
    write_raw(place.bootstrap, place.topic, b"fine", key=b"k")  # no UTF-8 in a header's name
    retry = ["workers.failing.retry.levels=[]", "workers.failing.concurrency=4"]
    with app.start(place.config(), only=["failing"], overrides=retry) as running:
        counters = running.counters["failing"]
        wait_until(
            lambda: counters.processed + counters.dead_lettered == 61, DEADLINE_S, "all is done"
        )
    ended = place.backlog(spark, "failing", chunk_records=1000).run(place.spans())
    assert (ended.left, ended.progress.failed) == ({}, 4)
    letters = sorted(map(reported, place.dead_letters()))
    assert len(letters) == 8
    assert letters[::2] == letters[1::2]
    unreadable, *failed = sorted(
        (row for row in place.rows(spark) if not row.ok), key=lambda row: row.attempts
    )
    assert [(row.outcome, row.reason, row.attempts) for row in failed] == [
        ("dead_lettered", "RETRIES_EXHAUSTED", 2)
    ] * 3
    assert all(row.error == f"ValueError: unknown order {row.offset}" for row in failed)
    assert (unreadable.outcome, unreadable.reason) == ("dead_lettered", "DECODE")
    assert len(place.rows(spark)) == 61


def test_what_is_recorded_does_not_run_again(spark: SparkSession, place: Place) -> None:
    place.produce(120)
    stops = iter([False, True])
    first = place.backlog(spark, "plain", stop_requested=lambda: next(stops)).run(place.spans())
    before = place.rows(spark)
    assert 0 < len(before) <= 50
    assert ranges.count_of(first.left) == 120 - len(before)
    place.produce(30)  # later than the first start: not in the range
    second = place.backlog(spark, "plain").run(place.spans())
    assert (second.left, second.progress.here) == ({}, 120 - len(before))
    after = place.rows(spark)
    assert [(row.partition, row.offset) for row in after] == [
        (partition, offset) for partition in range(PARTITIONS) for offset in range(40)
    ]
    assert [row for row in after if row.chunk == 0] == before
    third = place.backlog(spark, "plain").run(place.spans())
    assert third.progress.here == 0
    assert place.rows(spark) == after


def test_reading_is_limited_over_all_tasks(spark: SparkSession, place: Place) -> None:
    place.produce(60)
    received: list[BackfillProgress] = []
    backlog = place.backlog(
        spark, "plain", rate_per_s=20.0, chunk_records=100, on_progress=received.append
    )
    ended = backlog.run(place.spans())
    # Two tasks at once, with 10/s each: 20 records take a second after the first ten.
    assert ended.progress.seconds >= 2.0
    # It is one chunk, and progress is seen within.
    reached = [each.reached for each in received if not each.done]
    assert any(0 < each < 60 for each in reached)
    assert reached == sorted(reached)


def test_a_task_whose_breaker_is_open_is_reported_by_the_driver(
    spark: SparkSession, place: Place, caplog: pytest.LogCaptureFixture
) -> None:
    there = place.directory / "there again"
    place.produce(60, lambda _number: str(there).encode())
    received: list[BackfillProgress] = []

    def on_progress(progress: BackfillProgress) -> None:
        received.append(progress)
        if progress.held_up:
            there.touch()

    overrides = ["workers.outage.breaker.cool_down=1s", "workers.outage.breaker.min_calls=5"]
    backlog = place.backlog(spark, "outage", overrides, chunk_records=100, on_progress=on_progress)
    ended = backlog.run(place.spans())
    assert (ended.left, ended.progress.done, ended.progress.held_up) == ({}, 60, 0)
    assert any(each.held_up for each in received)
    assert re.search(r"one/0, task \d \(partitions [\d, ]+\): breaker (half-)?open", caplog.text)
    assert LogEvent.BACKFILL_BREAKER_CLOSED in events_in(caplog)


def last_fail(place: Place, good: int, bad: int) -> None:
    """Write records of which the last ones fail, all to one partition."""
    producer = Producer({"bootstrap.servers": place.bootstrap})
    for number in range(good + bad):
        value = b"fine" if number < good else b"bad"
        producer.produce(place.topic, key=b"k%d" % number, value=value, partition=0)
    assert producer.flush(DEADLINE_S) == 0


HELD = ("workers.failing.breaker.max_hold=1s", "workers.failing.retry.on_failure=overtake")


def test_a_chunk_whose_last_200_records_fail_ends_and_names_them_at_the_first_attempt(
    spark: SparkSession, place: Place
) -> None:
    last_fail(place, 100, 200)
    received: list[BackfillProgress] = []
    more = {"chunk_records": 1000, "on_progress": received.append}
    backlog = place.backlog(spark, "failing", [*HELD, "workers.failing.ordering=partition"], **more)
    with pytest.raises(RunError, match=rf"chunk 0 of .*{place.topic}\[0\]@.*--at-end leave"):
        backlog.run(place.spans())
    assert max(each.retried for each in received) <= 1
    assert place.rows(spark) == []
    assert len(place.dead_letters()) <= 20


@pytest.mark.parametrize(("bad", "at_end"), [(200, "leave"), (20, "fail")])
def test_the_last_records_of_a_range_leave_if_they_are_few_or_that_is_wanted(
    spark: SparkSession, place: Place, bad: int, at_end: AtEnd
) -> None:
    last_fail(place, 100, bad)
    plan = planning.worker_plan(app, place.chosen("failing", *HELD), at_end=at_end)
    ended = place.backlog(spark, "failing", chunk_records=1000, plan=plan).run(place.spans())
    assert (ended.left, ended.progress.failed) == ({}, bad)
    assert len(place.dead_letters()) == bad


def test_records_of_a_key_are_dealt_out_to_one_task_in_their_order(
    spark: SparkSession, place: Place
) -> None:
    from pyspark.sql import functions as F  # noqa: N812, PLC0415 - its usual name; optional

    from window_consumer.spark.backfill import job as reading  # noqa: PLC0415 - it needs Spark

    place.produce(300)
    consumer = {"bootstrap.servers": place.bootstrap, "fetch.queue.backoff.ms": 5}
    spans = {0: Span(3, 100), 2: Span(0, 90)}
    records = reading.by_keys(spark, consumer, place.topic, spans)
    found = records.select(F.spark_partition_id().alias("task"), "key", "partition", "offset")
    tasks, keys = defaultdict(list), defaultdict(set)
    for row in found.collect():
        tasks[row.task].append((row.partition, row.offset))
        keys[bytes(row.key)].add(row.task)
    assert len(tasks) == 2
    assert all(len(each) == 1 for each in keys.values())
    assert all(places == sorted(places) for places in tasks.values())
    assert sum(map(len, tasks.values())) == 97 + 90


def test_records_without_a_key_are_dealt_out_to_all_tasks(
    spark: SparkSession, place: Place
) -> None:
    """... as the consumer calls them on all slots; those with a key stay together."""
    from pyspark.sql import functions as F  # noqa: N812, PLC0415 - its usual name; optional

    from window_consumer.spark.backfill import job as reading  # noqa: PLC0415 - it needs Spark

    producer = Producer({"bootstrap.servers": place.bootstrap})
    for number in range(400):
        producer.produce(place.topic, key=b"" if number % 4 == 0 else None, partition=0)
    assert producer.flush(DEADLINE_S) == 0
    consumer = {"bootstrap.servers": place.bootstrap}
    records = reading.by_keys(spark, consumer, place.topic, {0: Span(0, 400)})
    found = records.select(F.spark_partition_id().alias("task"), "key", "offset").collect()
    assert sorted(row.offset for row in found) == list(range(400))
    counts = Counter(row.task for row in found if row.key is None)
    assert sorted(counts) == [0, 1]
    assert min(counts.values()) > 100
    assert len({row.task for row in found if row.key is not None}) == 1


def test_a_worker_with_order_by_key_runs_over_a_topic_with_one_partition(
    spark: SparkSession, place: Place
) -> None:
    place.produce(90)
    overrides = ["workers.plain.ordering=key", "workers.plain.retry.on_failure=overtake"]
    ended = place.backlog(spark, "plain", overrides).run({1: Span(0, 30)})
    assert (ended.left, ended.progress.failed) == ({}, 0)
    assert [(row.partition, row.offset) for row in place.rows(spark)] == [
        (1, offset) for offset in range(30)
    ]


def test_records_that_retention_takes_meanwhile_are_not_passed_over_in_silence(
    spark: SparkSession, place: Place
) -> None:
    place.produce(30)
    backlog, spans = place.backlog(spark, "plain"), place.spans()
    place.chosen("plain").prepared.cluster.delete_records({TopicPartition(place.topic, 1): 4})
    with pytest.raises(
        RunError, match=r"\[1\]: offsets 0 to 10 were requested.* 4 to 10: .*--skip-lost"
    ):
        backlog.run(spans)
    assert place.rows(spark) == []
    evolve(backlog, skip_lost=True).run(spans)
    assert len(place.rows(spark)) == 26


def test_another_backfill_of_the_same_name_is_refused(
    spark: SparkSession, place: Place, golden: Golden
) -> None:
    place.produce(3)
    backlog = place.backlog(spark, "plain")
    backlog.ledger.begin(backlog.about, place.spans())
    for column, value in (("worker", "typed"), ("asked", "from 2026"), ("topic", "others")):
        about: Mapping[str, str] = {column: value}
        with pytest.raises(UsageError) as refused:
            backlog.ledger.begin(evolve(backlog.about, **about), place.spans())
        golden(refused.value, topic=place.topic)
    backlog.ledger.begin(evolve(backlog.about, name="two", topic_id="a"), place.spans())
    with pytest.raises(UsageError) as refused:
        backlog.ledger.begin(evolve(backlog.about, name="two", topic_id="b"), place.spans())
    golden(refused.value, topic=place.topic)


def test_a_range_of_times_is_a_range_of_offsets(place: Place, golden: Golden) -> None:
    producer = Producer({"bootstrap.servers": place.bootstrap})
    for hour in range(10):
        producer.produce(place.topic, b"x", partition=1, timestamp=NEW_YEAR + hour * HOUR_MS)
    assert producer.flush(DEADLINE_S) == 0
    start = NEW_YEAR + 3 * HOUR_MS
    stop = NEW_YEAR + 5 * HOUR_MS
    with reader_of(place.client) as reader:
        wanted = ranges.WantedRange(place.topic, start, stop)
        assert ranges.resolve(wanted, reader) == {1: Span(3, 5)}
        assert ranges.resolve(ranges.WantedRange(place.topic, start), reader) == {1: Span(3, 10)}
        later = ranges.WantedRange(place.topic, NEW_YEAR + 9_000 * HOUR_MS)
        assert ranges.resolve(later, reader) == {}
        by_offset = ranges.WantedRange(place.topic, to_offsets={1: 4}, from_offsets={1: 2})
        assert ranges.resolve(by_offset, reader) == {1: Span(2, 4)}
        with pytest.raises(UsageError) as refused:
            ranges.resolve(ranges.WantedRange(place.topic, from_offsets={9: 1}), reader)
        golden(refused.value, topic=place.topic)


def test_what_retention_has_taken_is_reported(place: Place) -> None:
    producer = Producer({"bootstrap.servers": place.bootstrap})
    for hour in range(10):
        producer.produce(place.topic, b"x", partition=1, timestamp=NEW_YEAR + hour * HOUR_MS)
    assert producer.flush(DEADLINE_S) == 0
    cluster = place.chosen("plain").prepared.cluster
    cluster.delete_records({TopicPartition(place.topic, 1): 4})
    with reader_of(place.client) as reader:
        for hour, is_reported in ((2, True), (5, False)):
            wanted = ranges.WantedRange(place.topic, NEW_YEAR + hour * HOUR_MS)
            found = list(ranges.warnings(wanted, ranges.resolve(wanted, reader), reader, {}, 0))
            assert bool(found) is is_reported
            assert not is_reported or "begins at 2026-01-01T04:00:00Z" in found[0]
