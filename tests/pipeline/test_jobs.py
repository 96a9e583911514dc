"""A job's bad days: what is aborted, gone, unreadable, or killed meanwhile."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from attrs import evolve
from confluent_kafka import Producer, TopicPartition
from confluent_kafka.admin import NewTopic
from deltalake import DeltaTable
from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException

from tests import topics
from tests.golden_texts import Golden
from tests.pipeline.gates import DEADLINE_S, ended
from tests.pipeline.here import TRACE, Pipeline, topic_of
from tests.pipeline.streams import batch, counted, write
from window_consumer.dlq.spark import ranges as dead_letter_places
from window_consumer.dlq.spark.summary import ReportRequest
from window_consumer.model.errors import RunError
from window_consumer.spark import jobs, tables
from window_consumer.spark.commands.skipped import SkippedRanges


def test_an_empty_topic_gives_an_empty_table_and_later_events_come(pipeline: Pipeline) -> None:
    plan = pipeline.plan()
    assert pipeline.run(plan) == 0
    assert counted(plan)["rows"] == 0
    pipeline.write(batch(1), b"no event", batch(2))
    assert pipeline.run(plan) == 3
    assert counted(plan) == {"rows": 200, "distinct": 200}
    assert counted(plan, "quarantine") == {"rows": 1, "distinct": 1}
    assert pipeline.run(plan) == 0
    assert counted(plan) == {"rows": 200, "distinct": 200}


def test_events_of_aborted_transactions_are_not_in_the_table(
    pipeline: Pipeline, unique_name: Callable[[str], str]
) -> None:
    client = {"bootstrap.servers": pipeline.kafka.bootstrap}
    producer = Producer({**client, "transactional.id": unique_name("transaction")})
    producer.init_transactions(DEADLINE_S)
    for number, end in enumerate((producer.abort_transaction, producer.commit_transaction)):
        producer.begin_transaction()
        producer.produce(pipeline.topic, batch(number))
        assert producer.flush(DEADLINE_S) == 0
        end(DEADLINE_S)
    pipeline.write(batch(2))
    plan = pipeline.plan()
    pipeline.run(plan)
    assert counted(plan) == {"rows": 200, "distinct": 200}


@pytest.mark.slow
def test_what_retention_took_ends_the_job_with_its_range_or_is_passed(pipeline: Pipeline) -> None:
    plan = pipeline.plan()
    pipeline.write(batch(1))
    pipeline.run(plan)
    pipeline.write(batch(2), batch(3), batch(4))
    up_to = TopicPartition(pipeline.topic, 0, 3)
    pipeline.admin.delete_records([up_to])[up_to].result(DEADLINE_S)
    with pytest.raises((PySparkException, Py4JJavaError)) as caught:
        pipeline.run(plan)
    reason = jobs.explained(caught.value)
    assert f"{pipeline.topic}-0: offsets 1 to 3" in reason
    assert "fail_on_data_loss: false" in reason
    assert counted(plan)["rows"] == 100
    warnings: list[str] = []
    check = SkippedRanges("trace", pipeline.beginnings, warnings.append).check
    pipeline.run(pipeline.plan(fail_on_data_loss=False), before_batch=check)
    assert counted(plan) == {"rows": 200, "distinct": 200}
    (text,) = warnings
    assert f"{pipeline.topic} partition 0 offsets 1 to 2" in text
    pipeline.write(batch(5))
    pipeline.run(pipeline.plan(fail_on_data_loss=False), before_batch=check)
    assert counted(plan)["rows"] == 300
    assert warnings == [text]


@pytest.mark.parametrize("name", ["lake", "lake[1]"])
def test_dead_letters_that_a_restart_has_read_again_are_counted_once(
    pipeline: Pipeline, name: str
) -> None:
    made = pipeline.plan(dlq={"topics": [pipeline.topic], "patterns": []})
    plan = evolve(made, directory=str(pipeline.directory / name))
    producer = Producer({"bootstrap.servers": pipeline.kafka.bootstrap})
    for number in range(3):
        form = "99" if number == 1 else "1"
        producer.produce(pipeline.topic, b"failed", headers=[("wc-format", form)])
    assert producer.flush(DEADLINE_S) == 0
    for restart in (False, True):
        how = jobs.JobOptions(restart=restart)
        assert jobs.start(pipeline.spark, plan, jobs.JOBS["dlq"], how).wait(240)
        place = dead_letter_places.table(pipeline.spark, plan, ReportRequest(asked_ms=0))
        assert place is not None
        assert (place.letters.count(), place.unreadable) == (2, 1)


def test_a_batch_that_fails_ends_the_job_with_its_own_error(pipeline: Pipeline) -> None:
    def rows(*_: object) -> Any:
        raise RunError("unknown column")

    plan = pipeline.plan()
    pipeline.write(batch(1))
    with pytest.raises(RunError, match=r"^unknown column$"):
        jobs.start(pipeline.spark, plan, evolve(TRACE, rows=rows)).wait()
    assert counted(plan)["rows"] == 0
    pipeline.run(plan)
    assert counted(plan)["rows"] == 100


def test_a_python_process_that_is_killed_costs_the_batch_and_no_row(
    pipeline: Pipeline, golden: Golden
) -> None:
    plan = pipeline.plan()
    pipeline.write(batch(1), b"no event")
    killed = evolve(TRACE, rows=lambda given, how: ended(TRACE.rows(given, how)))
    with pytest.raises((PySparkException, Py4JJavaError)) as caught:
        jobs.start(pipeline.spark, plan, killed).wait()
    golden(jobs.explained(caught.value).partition("\n")[0])
    assert counted(plan)["rows"] == 0
    pipeline.run(plan)
    assert counted(plan) == {"rows": 100, "distinct": 100}
    assert counted(plan, "quarantine") == {"rows": 1, "distinct": 1}


def test_a_table_of_an_earlier_version_gets_the_columns_that_it_lacks(pipeline: Pipeline) -> None:
    plan = pipeline.plan()
    path = plan.table("trace")
    old = pipeline.spark.sql("SELECT 'old' event_id, DATE '2026-01-01' day, 1 bucket")
    old.write.format("delta").partitionBy("day", "bucket").save(path)
    pipeline.write(batch(1))
    pipeline.run(plan)
    assert counted(plan) == {"rows": 101, "distinct": 101}
    row = pipeline.spark.read.format("delta").load(path).where("event_id = 'old'").collect()[0]
    assert row["root_id"] is None


def test_a_value_of_two_megabytes_that_is_no_event_is_kept_by_half(pipeline: Pipeline) -> None:
    topics_large = {"max.message.bytes": "8000000"}
    topics.make(pipeline.admin, NewTopic(f"{pipeline.topic}-large", 1, 1, config=topics_large))
    plan = pipeline.plan(f"{pipeline.topic}-large")
    write(pipeline.kafka.bootstrap, topic_of(plan), [b"x" * 2_000_000, batch(1)])
    pipeline.run(plan)
    assert counted(plan)["rows"] == 100
    (value,) = DeltaTable(plan.table("quarantine")).to_pyarrow_table()["value"].to_pylist()
    assert value == b"x" * tables.MOST_BYTES
