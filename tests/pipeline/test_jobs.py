"""A job's bad days: what is gone, made anew, of another topic or of another version."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from attrs import evolve
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic
from deltalake import DeltaTable
from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException

from tests import topics
from tests.conftest import MakeTopic
from tests.golden_texts import Golden
from tests.pipeline.gates import DEADLINE_S, ended, held_up
from tests.pipeline.streams import batch, configured, counted, planned, write
from tests.waiting import wait_until
from window_consumer.dlq.spark import ranges as dead_letter_places
from window_consumer.dlq.spark.summary import ReportRequest
from window_consumer.model.errors import RunError
from window_consumer.spark import jobs, sources, tables
from window_consumer.spark.checkpoints import (
    Checkpoint,
    CheckpointError,
    CheckpointProblem,
    JobSource,
)
from window_consumer.spark.commands.skipped import SkippedRanges
from window_consumer.spark.plan import PipelinePlan
from window_consumer.spark.tables import NewerTableError
from window_consumer.testing.real_kafka import RealKafka
from window_consumer.trace.spark.config import TraceSection

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

TRACE = jobs.JOBS["trace"]
NEXT = 7
"""A batch that no run before has had."""


@contextmanager
def refused(problem: CheckpointProblem, match: str = "--restart") -> Iterator[None]:
    """Expect that a job cannot continue from its checkpoint."""
    with pytest.raises(CheckpointError, match=match) as caught:
        yield
    assert caught.value.problem is problem


def topic_of(plan: PipelinePlan) -> str:
    return plan.section(TraceSection).topic


class Pipeline:
    """A topic of events with two batches, and a directory."""

    def __init__(self, spark: SparkSession, kafka: RealKafka, topic: str, directory: Path):
        self.spark = spark
        self.kafka = kafka
        self.topic = topic
        self.directory = directory
        self.admin = AdminClient({"bootstrap.servers": kafka.bootstrap})

    def plan(self, topic: str | None = None, **more: Any) -> PipelinePlan:
        return planned(
            configured(self.directory, self.kafka.bootstrap, topic or self.topic, **more)
        )

    def write(self, *values: bytes) -> None:
        write(self.kafka.bootstrap, self.topic, values)

    def run(self, plan: PipelinePlan, **how: Any) -> int:
        """Run the job once; return how many records it has read."""
        its = topics.identity(self.admin, topic_of(plan))
        origin = JobSource(topics={topic_of(plan): its})
        query = jobs.start(self.spark, plan, TRACE, jobs.JobOptions(origin=origin, **how))
        query.wait()
        return query.sink.records

    def beginnings(self, topic: str) -> dict[int, int]:
        """Return the first offset of the one partition."""
        settings = {"bootstrap.servers": self.kafka.bootstrap, "group.id": "tests"}
        consumer = Consumer(settings)
        try:
            name = TopicPartition(topic, 0)
            return {0: consumer.get_watermark_offsets(name, DEADLINE_S, cached=False)[0]}
        finally:
            consumer.close()


@pytest.fixture
def pipeline(
    spark: SparkSession, kafka: RealKafka, make_topic: MakeTopic, tmp_path: Path
) -> Pipeline:
    return Pipeline(spark, kafka, make_topic("events"), tmp_path)


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


def test_a_topic_that_was_made_anew_is_not_taken_for_the_old_one(pipeline: Pipeline) -> None:
    plan = pipeline.plan()
    pipeline.write(batch(1), batch(2))
    pipeline.run(plan)
    topics.make_anew(pipeline.admin, NewTopic(pipeline.topic, 1, 1))
    pipeline.write(batch(3), batch(4), batch(5))
    with refused(CheckpointProblem.RECREATED_TOPIC):
        pipeline.run(plan)
    pipeline.run(plan, restart=True)
    assert counted(plan) == {"rows": 500, "distinct": 500}
    pipeline.write(batch(6))
    pipeline.run(plan)
    assert counted(plan) == {"rows": 600, "distinct": 600}


def test_a_topic_that_is_made_anew_between_two_batches_is_not_taken_for_the_old_one(
    pipeline: Pipeline,
) -> None:
    """... where it has records already at the offsets that come next."""
    plan = pipeline.plan(batch_records=1)
    pipeline.write(batch(1), batch(2), batch(3))
    asked = 0

    def origin_now() -> JobSource:
        nonlocal asked
        asked += 1
        if asked == 3:
            topics.make_anew(pipeline.admin, NewTopic(pipeline.topic, 1, 1))
            pipeline.write(*(batch(sequence) for sequence in range(4, 8)))
        return JobSource(topics={pipeline.topic: topics.identity(pipeline.admin, pipeline.topic)})

    with refused(CheckpointProblem.RECREATED_TOPIC):
        pipeline.run(plan, origin_now=origin_now)
    assert counted(plan)["rows"] == 200
    assert pipeline.run(plan, restart=True) == 4
    assert counted(plan) == {"rows": 600, "distinct": 600}


@pytest.mark.parametrize("has_rows", [False, True])
def test_a_topic_that_is_made_anew_after_a_begin_that_failed_can_be_begun(
    pipeline: Pipeline,
    has_rows: bool,  # noqa: FBT001 - a parameter of the test
) -> None:
    def fail(*_: object) -> Any:
        raise RunError("unknown column")

    plan, count = pipeline.plan(), 0
    if has_rows:
        pipeline.write(batch(1))
        count = pipeline.run(plan)
        topics.make_anew(pipeline.admin, NewTopic(pipeline.topic, 1, 1))
    pipeline.write(batch(2), batch(3))
    ids = {pipeline.topic: topics.identity(pipeline.admin, pipeline.topic)}
    how = jobs.JobOptions(origin=JobSource(topics=ids), restart=has_rows)
    with pytest.raises(RunError, match="unknown column"):
        jobs.start(pipeline.spark, plan, evolve(TRACE, rows=fail), how).wait()
    topics.make_anew(pipeline.admin, NewTopic(pipeline.topic, 1, 1))
    pipeline.write(batch(4))
    with refused(CheckpointProblem.RECREATED_TOPIC):
        pipeline.run(plan)
    assert pipeline.run(plan, restart=True) == 1
    assert counted(plan)["rows"] == 100 * (count + 1)


@pytest.mark.parametrize("name", ["trace", "audit", "dlq"])
def test_a_job_of_another_cluster_is_refused_before_it_reads_anything(
    pipeline: Pipeline, name: str
) -> None:
    job, dlq = jobs.JOBS[name], {"topics": [pipeline.topic], "patterns": []}
    plan = pipeline.plan(audit={"topic": pipeline.topic}, dlq=dlq)

    def run(cluster: str | None, its: str | None = None, **how: Any) -> int:
        its = its or topics.identity(pipeline.admin, pipeline.topic)
        origin = JobSource(cluster=cluster, topics={pipeline.topic: its})
        query = jobs.start(pipeline.spark, plan, job, jobs.JobOptions(origin=origin, **how))
        query.wait()
        return query.sink.records

    assert run(None) == 0  # it did not tell who it is
    assert run("one") == 0
    with refused(CheckpointProblem.OTHER_CLUSTER, f"`pipeline run {name} --restart`"):
        run("two", "another topic")
    assert run("two", restart=True) == 0
    with refused(CheckpointProblem.OTHER_CLUSTER):
        run("one")


def test_a_topic_of_dead_letters_that_was_made_anew_is_reported(pipeline: Pipeline) -> None:
    """... and not one that has come since, nor one that is gone."""
    job = jobs.JOBS["dlq"]
    plan = pipeline.plan(dlq={"topics": [], "patterns": [rf"^{pipeline.topic}"]})

    def run(ids: Mapping[str, str | None], *, restart: bool = False) -> None:
        how = jobs.JobOptions(origin=JobSource(topics=ids), restart=restart)
        jobs.start(pipeline.spark, plan, job, how).wait()

    run({"a": "1", "b": None})
    run({"a": "1", "b": "2", "c": "3"})
    run({"c": "3"})
    for name in "abc":
        with refused(CheckpointProblem.RECREATED_TOPIC, f"^{name} "):
            run({"a": "1", "b": "2", "c": "3", name: "4"})
    run({"a": "4", "b": "2", "c": "3"}, restart=True)
    run({"a": "4"})
    with refused(CheckpointProblem.RECREATED_TOPIC, "^a "):
        run({"a": "1"})


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


def test_a_checkpoint_that_is_gone_is_reported_before_anything_is_missed(
    pipeline: Pipeline,
) -> None:
    plan = pipeline.plan()
    pipeline.write(batch(1), batch(2))
    pipeline.run(plan)
    shutil.rmtree(plan.checkpoint("trace"))
    with refused(CheckpointProblem.BEHIND_TABLE):
        pipeline.run(plan)
    pipeline.write(batch(3))
    pipeline.run(plan, restart=True)
    assert counted(plan) == {"rows": 500, "distinct": 300}


def test_a_note_in_the_checkpoint_that_a_kill_left_empty_is_written_again(
    pipeline: Pipeline, make_topic: MakeTopic
) -> None:
    plan = pipeline.plan()
    pipeline.write(batch(1))
    pipeline.run(plan)
    note = Path(plan.checkpoint("trace"), "window_consumer.json")
    note.write_text("")
    note.with_name(f".{note.name}.crc").unlink()
    pipeline.write(batch(2))
    pipeline.run(plan)
    assert counted(plan) == {"rows": 200, "distinct": 200}
    with refused(CheckpointProblem.OTHER_TOPIC, pipeline.topic):
        pipeline.run(pipeline.plan(make_topic("other")))


def test_a_table_that_is_gone_or_of_before_is_reported(pipeline: Pipeline, tmp_path: Path) -> None:
    plan = pipeline.plan()
    pipeline.write(batch(1))
    pipeline.run(plan)
    shutil.copytree(plan.table("trace"), tmp_path / "a copy of before")
    pipeline.write(batch(2))
    pipeline.run(plan)
    for copy in (None, tmp_path / "a copy of before"):
        shutil.rmtree(plan.table("trace"))
        if copy is not None:
            shutil.copytree(copy, plan.table("trace"))
        with refused(CheckpointProblem.AHEAD_OF_TABLE):
            pipeline.run(plan)
    pipeline.run(plan, restart=True)
    assert counted(plan) == {"rows": 300, "distinct": 200}
    shutil.rmtree(plan.table("trace"))
    pipeline.run(plan, restart=True)
    assert counted(plan) == {"rows": 200, "distinct": 200}


def test_a_checkpoint_of_before_is_refused(pipeline: Pipeline, tmp_path: Path) -> None:
    plan = pipeline.plan()
    pipeline.write(batch(1))
    pipeline.run(plan)
    shutil.copytree(plan.checkpoint("trace"), tmp_path / "a copy of before")
    pipeline.write(batch(2))
    pipeline.run(plan)
    shutil.rmtree(plan.checkpoint("trace"))
    shutil.copytree(tmp_path / "a copy of before", plan.checkpoint("trace"))
    with refused(CheckpointProblem.BEHIND_TABLE):
        pipeline.run(plan)


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


def test_a_batch_that_somebody_else_has_written_is_reported(pipeline: Pipeline) -> None:
    plan = pipeline.plan()
    pipeline.write(batch(1))
    pipeline.run(plan)
    records = sources.bounded(pipeline.spark, sources.options(plan.kafka, topic_of(plan)))
    unaware = Checkpoint(plan.checkpoint("trace"), 0, written=-1)
    sink = jobs.BatchSink(
        TRACE,
        plan,
        plan.table("trace"),
        plan.table("quarantine"),
        unaware,
        counted_s=1,  # no count comes
    )
    with pytest.raises(jobs.BatchFailedError):
        sink.write(records, 0)
    assert isinstance(sink.failure, jobs.SecondWriterError)
    assert counted(plan) == {"rows": 100, "distinct": 100}


def test_two_processes_that_write_a_batch_at_once_write_it_once(
    pipeline: Pipeline, tmp_path: Path
) -> None:
    """... as they may in a directory of several machines; the slower one is told."""
    plan = pipeline.plan()
    pipeline.run(plan)  # which makes the tables, and may be a batch already
    pipeline.write(batch(1))
    records = sources.bounded(pipeline.spark, sources.options(plan.kafka, topic_of(plan)))
    running, gate = tmp_path / "running", tmp_path / "gate"

    def sink(rows: Callable[[DataFrame, PipelinePlan], DataFrame]) -> jobs.BatchSink:
        unaware = Checkpoint(plan.checkpoint("trace"), 0, written=-1)
        job = evolve(TRACE, rows=rows)
        return jobs.BatchSink(job, plan, plan.table("trace"), plan.table("quarantine"), unaware)

    slow = sink(lambda given, how: held_up(TRACE.rows(given, how), running, gate))
    with ThreadPoolExecutor(1) as pool:
        writing = pool.submit(slow.write, records, NEXT)
        try:
            wait_until(running.exists, DEADLINE_S, "the slower one writes")
            sink(TRACE.rows).write(records, NEXT)
        finally:
            gate.touch()
        with pytest.raises(jobs.BatchFailedError):
            writing.result(DEADLINE_S)
    assert isinstance(slow.failure, jobs.SecondWriterError)
    assert counted(plan) == {"rows": 100, "distinct": 100}


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


def test_a_checkpoint_of_another_topic_is_refused(
    pipeline: Pipeline, make_topic: MakeTopic
) -> None:
    plan = pipeline.plan()
    pipeline.write(batch(1))
    pipeline.run(plan)
    other = make_topic("other")
    with refused(CheckpointProblem.OTHER_TOPIC, f"{pipeline.topic}.*{other}"):
        pipeline.run(pipeline.plan(other))


def test_a_table_of_a_later_version_is_left_alone(pipeline: Pipeline) -> None:
    plan = pipeline.plan()
    pipeline.write(batch(1))
    pipeline.run(plan)
    pipeline.spark.sql(
        f"ALTER TABLE delta.`{plan.table('trace')}`"
        " SET TBLPROPERTIES ('window_consumer.version' = '99')"
    )
    with pytest.raises(NewerTableError):
        pipeline.run(plan)


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
