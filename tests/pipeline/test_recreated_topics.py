"""A job refuses to read a topic that was recreated, or another cluster, and says why."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest
from attrs import evolve
from confluent_kafka.admin import NewTopic

from tests import topics
from tests.pipeline.here import TRACE, Pipeline, refused
from tests.pipeline.streams import batch, counted
from window_consumer.model.errors import RunError
from window_consumer.spark import jobs
from window_consumer.spark.checkpoints import CheckpointProblem, JobSource


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
    assert pipeline.run(pipeline.plan(), restart=True) == 4
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
    """New topics and deleted ones are not reported."""
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
