"""A job whose checkpoint or table is gone, of before, of another topic or of another version."""

from __future__ import annotations

import shutil
import uuid
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from attrs import evolve
from confluent_kafka.admin import NewTopic

from tests import topics
from tests.conftest import MakeTopic
from tests.pipeline.gates import DEADLINE_S, held_up
from tests.pipeline.here import TRACE, Pipeline, refused, topic_of
from tests.pipeline.streams import batch, counted
from tests.waiting import wait_until
from window_consumer.spark import jobs, sources
from window_consumer.spark.checkpoints import Checkpoint, CheckpointProblem
from window_consumer.spark.plan import PipelinePlan
from window_consumer.spark.tables import NewerTableError
from window_consumer.testing.real_kafka import RealKafka

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

NEXT = 7
"""A batch that no run before has had."""

HasRead = Callable[[int], Pipeline]


@pytest.fixture(scope="module")
def laid_out(
    spark: SparkSession, kafka: RealKafka, tmp_path_factory: pytest.TempPathFactory
) -> Pipeline:
    """A topic of three batches, and a directory after each of a job's first two.

    Nobody writes there: each test gets copies.
    """
    directory = tmp_path_factory.mktemp("pipeline")
    made = Pipeline(spark, kafka, f"events-{uuid.uuid4().hex[:12]}", directory / "0")
    made.directory.mkdir()
    topics.make(made.admin, NewTopic(made.topic, 1, 1))
    for sequence in (1, 2):
        made.write(batch(sequence))
        made.run(made.plan())
        shutil.copytree(made.directory, directory / str(sequence))
    made.write(batch(3))
    return made


@pytest.fixture
def has_read(laid_out: Pipeline, tmp_path: Path) -> HasRead:
    """``has_read(2)`` is a pipeline whose job has read two of three batches."""

    def copied(batches: int) -> Pipeline:
        directory = tmp_path / str(batches)
        shutil.copytree(laid_out.directory.with_name(str(batches)), directory)
        return Pipeline(laid_out.spark, laid_out.kafka, laid_out.topic, directory)

    return copied


def test_a_checkpoint_that_is_gone_is_reported_before_anything_is_missed(has_read: HasRead) -> None:
    pipeline = has_read(2)
    plan = pipeline.plan()
    shutil.rmtree(plan.checkpoint("trace"))
    with refused(CheckpointProblem.BEHIND_TABLE):
        pipeline.run(plan)
    pipeline.run(plan, restart=True)
    assert counted(plan) == {"rows": 500, "distinct": 300}


def test_a_note_in_the_checkpoint_that_a_kill_left_empty_is_written_again(
    has_read: HasRead, make_topic: MakeTopic
) -> None:
    pipeline = has_read(1)
    plan = pipeline.plan()
    note = Path(plan.checkpoint("trace"), "window_consumer.json")
    note.write_text("")
    note.with_name(f".{note.name}.crc").unlink()
    pipeline.run(plan)
    assert counted(plan) == {"rows": 300, "distinct": 300}
    with refused(CheckpointProblem.OTHER_TOPIC, pipeline.topic):
        pipeline.run(pipeline.plan(make_topic("other")))


def test_a_table_that_is_gone_or_of_before_is_reported(has_read: HasRead) -> None:
    pipeline, before = has_read(2), has_read(1).plan()
    plan = pipeline.plan()
    for copy in (None, before.table("trace")):
        shutil.rmtree(plan.table("trace"))
        if copy is not None:
            shutil.copytree(copy, plan.table("trace"))
        with refused(CheckpointProblem.AHEAD_OF_TABLE):
            pipeline.run(plan)
    pipeline.run(plan, restart=True)
    assert counted(plan) == {"rows": 400, "distinct": 300}
    shutil.rmtree(plan.table("trace"))
    pipeline.run(plan, restart=True)
    assert counted(plan) == {"rows": 300, "distinct": 300}


def test_a_checkpoint_of_before_is_refused(has_read: HasRead) -> None:
    pipeline, before = has_read(2), has_read(1).plan()
    plan = pipeline.plan()
    shutil.rmtree(plan.checkpoint("trace"))
    shutil.copytree(before.checkpoint("trace"), plan.checkpoint("trace"))
    with refused(CheckpointProblem.BEHIND_TABLE):
        pipeline.run(plan)


def test_a_checkpoint_of_another_topic_is_refused(has_read: HasRead, make_topic: MakeTopic) -> None:
    pipeline = has_read(1)
    other = make_topic("other")
    with refused(CheckpointProblem.OTHER_TOPIC, f"{pipeline.topic}.*{other}"):
        pipeline.run(pipeline.plan(other))


def test_a_table_of_a_later_version_is_left_alone(has_read: HasRead) -> None:
    pipeline = has_read(1)
    plan = pipeline.plan()
    pipeline.spark.sql(
        f"ALTER TABLE delta.`{plan.table('trace')}`"
        " SET TBLPROPERTIES ('window_consumer.version' = '99')"
    )
    with pytest.raises(NewerTableError):
        pipeline.run(plan)


def test_a_batch_that_somebody_else_has_written_is_reported(has_read: HasRead) -> None:
    pipeline = has_read(1)
    plan = pipeline.plan()
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
    has_read: HasRead, tmp_path: Path
) -> None:
    """Several machines may share the directory; the slower process gets an error."""
    pipeline = has_read(1)
    plan = pipeline.plan()
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
    assert counted(plan) == {"rows": 400, "distinct": 300}
