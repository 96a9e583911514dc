"""Commands and jobs in the process of the tests: they get its session, and start no Spark."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from io import StringIO
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from confluent_kafka import Consumer, TopicPartition
from confluent_kafka.admin import AdminClient

from tests import topics
from tests.commands import Ended
from tests.pipeline.gates import DEADLINE_S
from tests.pipeline.streams import configured, planned, write
from window_consumer.cli.main import main
from window_consumer.spark import jobs
from window_consumer.spark.checkpoints import CheckpointError, CheckpointProblem, JobSource
from window_consumer.spark.commands.runner import runner_of
from window_consumer.spark.plan import PipelinePlan
from window_consumer.spark.wire import load_pipeline
from window_consumer.testing.real_kafka import RealKafka
from window_consumer.trace.spark.config import TraceSection

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

TRACE = jobs.JOBS["trace"]


def run(spark: SparkSession, *arguments: str) -> Ended:
    """Run ``window-consumer`` with these arguments, in the session that is active."""
    active = spark.getActiveSession()
    assert active is not None
    assert active.sparkContext is spark.sparkContext
    with (
        redirect_stdout(StringIO()) as out,
        redirect_stderr(StringIO()) as err,
        pytest.raises(SystemExit) as ended,
    ):
        main([*arguments])
    assert isinstance(ended.value.code, int)
    return Ended(ended.value.code, out.getvalue(), err.getvalue())


def run_job(spark: SparkSession, file: Path, name: str = "trace") -> None:
    """Run a job of a pipeline.yaml once, as a report does before it answers."""
    runner_of(load_pipeline(file)).refresh(spark, name)


@contextmanager
def refused(problem: CheckpointProblem, match: str = "--restart") -> Iterator[None]:
    """Expect that a job cannot continue from its checkpoint."""
    with pytest.raises(CheckpointError, match=match) as caught:
        yield
    assert caught.value.problem is problem


def topic_of(plan: PipelinePlan) -> str:
    return plan.section(TraceSection).topic


class Pipeline:
    """A topic of events, and a directory."""

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
