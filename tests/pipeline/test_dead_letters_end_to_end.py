"""From workers that fail, by the dead-letter topics, to a report that equals what was planted."""

from __future__ import annotations

import json
import shlex
from collections import Counter
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic

from tests import topics
from tests.commands import Commands
from tests.conftest import MakeTopic
from tests.integration.members import log_ends
from tests.model.test_dead_letter import CONNECT, SPRING
from tests.pipeline import here
from tests.waiting import wait_until
from window_consumer.dlq.dead_letter import WrittenBy
from window_consumer.dlq.spark import ranges as dead_letter_places
from window_consumer.dlq.spark.config import DeadLetterSection
from window_consumer.dlq.spark.findings import DeadLetterFindings
from window_consumer.dlq.spark.summary import ReportRequest, findings
from window_consumer.spark import jobs
from window_consumer.spark.plan import PipelinePlan
from window_consumer.testing.real_kafka import RealKafka

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SHOP = """
from window_consumer import App, Fatal, Record

app = App("shop", version="7")


class NoCard(Exception):
    pass


@app.handler("{topic}")
def charge(order: Record) -> None:
    kind = order.json()["kind"]
    if kind == "fatal":
        raise Fatal("never") from NoCard("no card")
    if kind == "wrong":
        raise ValueError(f"wrong: {order.offset}")
"""
KINDS = ["good", "wrong", "good", "fatal", "wrong"]
RECORDS = 40
FOREIGN = {"spring": SPRING, "kafka-connect": CONNECT}
DEADLINE_S = 180


def planted(bootstrap: str, topic: str) -> Counter[str]:
    """Write records for the worker; return how many of each kind."""
    producer = Producer({"bootstrap.servers": bootstrap})
    kinds = [KINDS[at % len(KINDS)] for at in range(RECORDS)]
    for at, kind in enumerate(kinds):
        key = "c17" if kind == "wrong" else f"c{at}"
        producer.produce(topic, json.dumps({"kind": kind}), key)
    assert producer.flush(DEADLINE_S) == 0
    return Counter(kinds)


def write_foreign(bootstrap: str, topic: str) -> None:
    """Write dead letters of other frameworks, two of each, and nobody's record."""
    producer = Producer({"bootstrap.servers": bootstrap})
    for headers in FOREIGN.values():
        for _ in range(2):
            producer.produce(topic, b"v", b"k", headers=[*headers])
    producer.produce(topic, b"v")
    assert producer.flush(DEADLINE_S) == 0


def answers(found: DeadLetterFindings) -> dict[str, tuple[int, int | None, int | None]]:
    """Return count, first and last time of each cause."""
    return {
        cause.fingerprint or cause.error_class or "": (cause.count, cause.first_ms, cause.last_ms)
        for cause in found.causes
    }


@pytest.mark.slow
def test_the_report_equals_what_was_planted(
    spark: SparkSession,
    kafka: RealKafka,
    make_topic: MakeTopic,
    unique_name: Callable[[str], str],
    commands: Commands,
    tmp_path: Path,
) -> None:
    """... from the table, from Kafka, and by the command."""
    topic, group = make_topic("orders", 2), unique_name("shop")
    foreign = make_topic("connect-errors")
    dlq = f"{group}.{topic}.dlq"
    topics.make(AdminClient({"bootstrap.servers": kafka.bootstrap}), NewTopic(dlq, 2, 1))
    kinds = planted(kafka.bootstrap, topic)
    kafka_section = {"bootstrap.servers": kafka.bootstrap}
    retry = {"attempts": 2, "backoff": "1ms..2ms"}
    worker = {"group": group, "topics": [topic], "retry": retry, "breaker": {"enabled": False}}
    commands.configure({"kafka": kafka_section, "workers": {"charge": worker}})
    commands.application(SHOP.replace("{topic}", topic))
    running = commands.start("run", "shop:app")
    failing = kinds["wrong"] + kinds["fatal"]
    wait_until(
        lambda: sum(log_ends(kafka.bootstrap, dlq).values()) >= failing,
        DEADLINE_S,
        "all are dead letters",
    )
    assert running.stop().code == 0

    pattern = f"^{group}[.].+[.]dlq$"
    plan = PipelinePlan(
        kafka=kafka_section,
        directory=str(tmp_path / "lake"),
        features={DeadLetterSection: DeadLetterSection(topics=(foreign,), patterns=(pattern,))},
    )
    before = ReportRequest(asked_ms=2**41)
    assert dead_letter_places.table(spark, plan, before) is None
    run_job(spark, plan)
    write_foreign(kafka.bootstrap, foreign)
    run_job(spark, plan)
    run_job(spark, plan)

    place = dead_letter_places.table(spark, plan, before)
    assert place is not None
    found = findings(place.letters, before, place.name, place.unreadable)
    assert found.count == failing + 5
    by = {each.value: each.count for each in found.sides["by"]}
    assert by == {"window-consumer": failing, **dict.fromkeys(FOREIGN, 2), "unknown": 1}
    wrong = next(cause for cause in found.causes if cause.error_class == "ValueError")
    assert (wrong.count, wrong.keys.top, wrong.keys.spread) == (
        kinds["wrong"],
        (("c17", kinds["wrong"]),),
        "one",
    )
    assert [(each.value, each.of) for each in wrong.sides["version"]] == [("7", group)]
    assert [each.value for each in wrong.sides["handler"]] == ["charge"]
    assert wrong.sides["host"][0].value is not None
    assert wrong.examples[0].error_stack is not None
    assert "in charge" in wrong.examples[0].error_stack

    with dead_letter_places.kafka(spark, plan, before) as direct:
        from_kafka = findings(direct.letters, before, direct.name, direct.unreadable)
    assert answers(from_kafka) == answers(found)

    said = by_command(spark, commands, plan, group)
    assert said["count"] == failing
    reported = next(cause for cause in said["causes"] if cause["error_class"] == "ValueError")
    assert (reported["count"], reported["first_ms"], reported["last_ms"]) == (
        wrong.count,
        wrong.first_ms,
        wrong.last_ms,
    )
    assert f"{WrittenBy.SPRING}" not in (tmp_path / "report.html").read_text("utf-8")
    assert (said["put_back"], reported["put_back"]) == (0, 0)
    put_back(commands, reported["redrive"], wrong.count)
    said = by_command(spark, commands, plan, group)
    assert said["put_back"] == wrong.count, said["put_back_unknown"]
    assert waiting(said) == {"ValueError": 0, "window_consumer.model.errors.Fatal": kinds["fatal"]}


def waiting(said: Mapping[str, Any]) -> dict[str, int]:
    """Return how many dead letters of each class are to be put back."""
    return {each["error_class"]: each["count"] - each["put_back"] for each in said["causes"]}


def run_job(spark: SparkSession, plan: PipelinePlan) -> None:
    assert jobs.start(spark, plan, jobs.JOBS["dlq"]).wait(int(DEADLINE_S))


def by_command(
    spark: SparkSession, commands: Commands, plan: PipelinePlan, group: str
) -> dict[str, Any]:
    """Return what the command says of a group, from the table."""
    about = {"kafka": dict(plan.kafka), "directory": plan.directory}
    commands.configure(about, "pipeline.yaml")
    given = ["-c", str(commands.directory / "pipeline.yaml"), "--group", group, "--json"]
    page = str(commands.directory / "report.html")
    ended = here.run(spark, "dlq", "report", *given, "-o", page)
    assert ended.code == 0, ended.err
    reported: dict[str, Any] = ended.json
    return reported


def put_back(commands: Commands, command: str, count: int) -> None:
    """Run the command of the report, as it stands there."""
    ended = commands.start(*shlex.split(command)[1:], "--json").wait(DEADLINE_S)
    assert ended.code == 0, ended.err
    assert sum(each["redriven"] for each in ended.json["redrives"]) == count
