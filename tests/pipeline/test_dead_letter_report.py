"""A report on dead letters says what was planted: causes, counts, times, sides and keys."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.sql import functions as F  # noqa: N812 - its usual name

from tests.cli.dead_letters import DLQ
from tests.golden_texts import Golden
from tests.model.test_dead_letter import SHARE_GROUP, SPRING
from tests.pipeline.dead_letters import HOUR_MS, NOW_MS, Letter, ours, records
from window_consumer.dlq.report.formatting import name_of
from window_consumer.dlq.spark import report as dead_letter_report
from window_consumer.dlq.spark import table as dead_letters
from window_consumer.dlq.spark.config import Reading
from window_consumer.dlq.spark.findings import DeadLetterFindings
from window_consumer.dlq.spark.summary import ReportRequest, findings

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


def read(spark: SparkSession, *letters: Letter) -> DataFrame:
    return dead_letters.letters(dead_letters.judge(records(spark, *letters)), Reading())


def report(spark: SparkSession, *letters: Letter, **wishes: Any) -> DeadLetterFindings:
    asked = ReportRequest(asked_ms=NOW_MS, **wishes)
    return findings(asked.of(read(spark, *letters)), asked, "here", 0)


def planted() -> list[Letter]:
    """Return 6 of one cause, 4 of another since version 8, an expired and a foreign one."""
    busy = [
        Letter(
            headers=ours(
                at,
                30 - 5 * at,
                error_fingerprint="a" * 16,
                error_class="shop.NoConnection",
                host=f"pod-{at % 2}",
                orig_partition=str(at % 3),
            ),
            key=b"c%d" % at,
        )
        for at in range(6)
    ]
    deployed = [
        Letter(
            headers=ours(
                10 + at,
                0.5 * at,
                error_fingerprint="b" * 16,
                error_class="ValueError",
                app_version="8",
            ),
            key=b"c17",
        )
        for at in range(1, 5)
    ]
    nothing = dict.fromkeys(("error_class", "error_fingerprint", "error_stack", "error_message"))
    expired = Letter(headers=ours(20, 40, reason="EXPIRED", **nothing), key=None)
    return [*busy, *deployed, expired, Letter(headers=SPRING, topic="orders-dlt", key=b"c17")]


@pytest.fixture(scope="module")
def found(spark: SparkSession) -> DeadLetterFindings:
    """The report on what was planted."""
    return report(spark, *planted())


def test_the_report_says_what_was_planted(found: DeadLetterFindings) -> None:
    assert (found.count, found.distinct_causes, found.others) == (12, 4, 0)
    assert (found.first_ms, found.last_ms) == (NOW_MS - 40 * HOUR_MS, NOW_MS)
    busy, deployed = found.causes[:2]
    assert (busy.error_class, busy.fingerprint, busy.count) == ("shop.NoConnection", "a" * 16, 6)
    assert (busy.first_ms, busy.last_ms) == (NOW_MS - 30 * HOUR_MS, NOW_MS - 5 * HOUR_MS)
    assert {(each.value, each.count) for each in busy.sides["host"]} == {("pod-0", 3), ("pod-1", 3)}
    partitions = {(each.of, each.value, each.count) for each in busy.sides["partition"]}
    assert partitions == {("orders", str(each), 2) for each in range(3)}
    assert (busy.keys.distinct, busy.keys.spread) == (6, "many")
    assert busy.is_on(NOW_MS), "it comes every five hours"
    assert found.began_with(busy) is None

    assert (deployed.error_class, deployed.count) == ("ValueError", 4)
    assert deployed.keys.top == (("c17", 4),)
    version = found.began_with(deployed)
    assert version is not None
    assert (version.value, version.of, version.count) == ("8", "shop-charge", 4)

    expired = next(each for each in found.causes if each.reason == "EXPIRED")
    assert (expired.fingerprint, expired.error_class, expired.count) == (None, None, 1)
    assert not expired.is_on(NOW_MS)
    assert (expired.keys.without, expired.keys.spread) == (1, "unknown")
    spring = next(each for each in found.causes if each.sides["by"][0].value == "spring")
    assert spring.error_class == "java.lang.IllegalStateException"
    assert (found.keys.count, found.keys.without, found.keys.top[0]) == (11, 1, ("c17", 5))


def test_what_had_been_put_back_before_is_counted(spark: SparkSession) -> None:
    """... by the cause that it has now; one without the header was not."""
    a, b = "a" * 16, "b" * 16
    written = [(a, None), (a, "0"), (a, "1"), (a, "2"), (b, "1"), (b, None)]
    letters = [
        Letter(headers=ours(at, redrives=redrives, error_fingerprint=cause))
        for at, (cause, redrives) in enumerate(written)
    ]
    found = report(spark, *letters)
    counted = {each.fingerprint: (each.count, each.failed_again) for each in found.causes}
    assert counted == {a: (4, 2), b: (2, 1)}
    assert (found.count, found.failed_again) == (6, 3)
    assert report(spark, groups=("nobody",)).failed_again == 0


def test_what_was_put_back_since_is_counted_by_its_place(spark: SparkSession) -> None:
    """... to the offset, in the topic and the partition that it was said of."""
    a, b = "a" * 16, "b" * 16
    letters = [
        Letter(headers=ours(at, error_fingerprint=a if at < 60 else b), offset=at, partition=at % 2)
        for at in range(1, 101)
    ]
    runs = [
        (DLQ, 0, 2, 2),
        (DLQ, 1, 3, 3),
        (DLQ, 0, 30, 34),  # on both sides of a border of 32
        (DLQ, 1, 59, 97),
        (DLQ, 0, 100, 100_000),
        ("others.dlq", 0, 0, 100),
        (DLQ, 3, 0, 100),
        (DLQ, 0, 0, 2**62),  # which no redrive can have written
    ]
    put_back = {2, 3, 30, 32, 34, 100, *range(59, 98, 2)}
    asked = ReportRequest(asked_ms=NOW_MS)
    found = findings(read(spark, *letters), asked, "here", 0, runs)
    counted = {each.fingerprint: (each.count, each.put_back) for each in found.causes}
    of_a = sum(1 for each in put_back if each < 60)
    assert counted == {a: (59, of_a), b: (41, len(put_back) - of_a)}
    assert found.put_back == len(put_back)
    nothing = findings(read(spark, *letters), asked, "here", 0, [])
    assert [nothing.put_back, *(each.put_back for each in nothing.causes)] == [0, 0, 0]
    unknown = findings(read(spark, *letters), asked, "here", 0)
    assert [unknown.put_back, *(each.put_back for each in unknown.causes)] == [None] * 3


def test_what_tells_neither_reason_nor_class_is_a_cause_by_who_wrote_it(
    spark: SparkSession, golden: Golden
) -> None:
    """... so that a share group's dead letters are apart from what is none at all."""
    found = report(
        spark,
        *[Letter(headers=SHARE_GROUP, topic="orders-dlt", offset=at) for at in (1, 2, 3)],
        Letter(headers=None, topic="orders-dlt", offset=4),
    )
    causes = [(each.count, each.examples[0].dead_letter) for each in found.causes]
    assert causes == [(3, "orders-dlt/0/3"), (1, "orders-dlt/0/4")]
    for each in found.causes:
        golden(name_of(each))


def test_periods_add_up_to_all(found: DeadLetterFindings) -> None:
    assert found.period_ms == HOUR_MS
    assert sum(found.periods.values()) == 12
    assert all(sum(each.periods.values()) == each.count for each in found.causes)
    assert found.causes[1].periods == {
        NOW_MS // HOUR_MS * HOUR_MS - HOUR_MS * ago: count
        for ago, count in ((2, 1), (1, 2), (0, 1))
    }


def test_of_a_long_time_the_periods_are_longer(spark: SparkSession) -> None:
    found = report(spark, *(Letter(headers=ours(at, 24 * at)) for at in range(30)))
    assert found.period_ms == 6 * HOUR_MS
    assert sum(found.periods.values()) == 30


def test_examples_are_the_latest_and_the_first(spark: SparkSession) -> None:
    letters = [Letter(headers=ours(at, 1 + (at * 7) % 10)) for at in range(10)]
    (cause,) = report(spark, *letters).causes
    ages = [(NOW_MS - (each.failed_ms or 0)) // HOUR_MS for each in cause.examples]
    assert ages == [1, 2, 10]
    assert cause.error_message == "no amount"


def test_examples_are_the_same_where_only_the_ends_are_read(spark: SparkSession) -> None:
    """... for letters at random: alone, at one moment, in one hour, and without a time."""
    chance = random.Random(7)
    letters = [
        Letter(
            headers=ours(
                at,
                chance.choice([1, 1, 1.1, 5, 30, 700]) if cause % 3 else 0.5 + chance.random() / 2,
                error_fingerprint=f"{cause:016}" if cause % 4 else None,
                error_class=f"shop.E{cause}",
                host=f"pod-{chance.randrange(3)}",
            )
        )
        for cause in range(12)
        for at in range(cause * 100, cause * 100 + 1 + cause * 2)
    ]
    named = dead_letter_report.with_cause(read(spark, *letters))
    untimed = F.when(F.col("offset") % 9 != 5, F.col("failed_at"))
    named = named.withColumn("failed_at", untimed).persist()
    facts = dead_letter_report.facts(named)
    (whole,) = dead_letter_report.summary(dead_letter_report.causes(facts)).collect()
    near = dead_letter_report.near_ends(named, whole["top"])
    place = ("cause", "topic", "partition", "offset")
    assert 0 < near.count() < len(letters)
    some = dead_letter_report.examples(near).select(*place).collect()
    assert sorted(some) == sorted(dead_letter_report.examples(named).select(*place).collect())
    assert {row["cause"] for row in some} == {row["cause"] for row in whole["top"]}
    named.unpersist()


def test_the_most_frequent_keys_and_causes_are_reported_most_frequent_first(
    spark: SparkSession,
) -> None:
    letters = [
        Letter(headers=ours(at, error_fingerprint=f"{cause:016}"), key=b"c%d" % cause)
        for cause in range(1, 14)
        for at in range(cause)
    ]
    found = report(spark, *letters)
    assert [each.count for each in found.causes] == list(range(13, 0, -1))
    assert found.keys.top == tuple((f"c{count}", count) for count in range(13, 3, -1))
    assert (found.keys.distinct, found.keys.count) == (13, len(letters))


def test_what_is_asked_for_is_what_is_reported(spark: SparkSession) -> None:
    letters = read(spark, *planted()).persist()

    def count(**wishes: Any) -> int:
        return ReportRequest(asked_ms=NOW_MS, **wishes).of(letters).count()

    assert count(since_ms=NOW_MS - 3 * HOUR_MS) == 5
    assert count(topics=("orders-dlt",)) == 1
    assert count(topics=("orders",)) == 12
    assert count(groups=("shop",)) == 1
    letters.unpersist()


def test_a_report_on_nothing_is_one(spark: SparkSession) -> None:
    nothing = report(spark, groups=("nobody",))
    assert (nothing.count, nothing.causes, nothing.first_ms) == (0, (), None)


def test_less_frequent_causes_are_counted_together(spark: SparkSession) -> None:
    found = report(spark, *planted(), most_causes=1)
    assert ([each.count for each in found.causes], found.others) == ([6], 6)
    assert (found.distinct_causes, found.keys.top[0]) == (4, ("c17", 5))
    assert sum(found.periods.values()) == 12
