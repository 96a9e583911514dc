"""What the audit finds: each planted loss and duplicate, and no other."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from attrs import frozen
from pyspark.sql import functions as F  # noqa: N812 - its usual name

from tests.golden_texts import Golden
from tests.pipeline.audit_history import MINUTE_MS, NOON_MS, Story, counted
from window_consumer.audit.commands.printing import findings_in, print_explanation, print_report
from window_consumer.audit.count import CountTier, encode
from window_consumer.audit.spark import counts as audit
from window_consumer.audit.spark import report as audit_report
from window_consumer.audit.spark.coverage import HELD
from window_consumer.audit.spark.findings import Rules
from window_consumer.audit.spark.report import AuditReport, NoCountsError, Scope
from window_consumer.audit.states import Finding, State
from window_consumer.model.errors import UsageError
from window_consumer.spark.tables import QUARANTINE

if TYPE_CHECKING:
    from pyspark.sql import Row, SparkSession

GRACE = 10
"""Minutes."""

NOW = 60
"""The minute in which is asked: nearly all is final."""

BUCKETS = 8
"""Of each story; what is wrong is in one in the middle, the fourth."""

Found = dict[int, "Row"]
"""By the number of the bucket."""


def ids(bucket: int, count: int = 10) -> list[str]:
    return [f"{bucket}-{number}" for number in range(count)]


@frozen
class Case:
    """A story, and what is found in its buckets that are not balanced."""

    tell: Callable[[Story], None]
    expected: dict[int, tuple[Finding, int, int]]
    """The finding, how many are lost, how many duplicated."""
    with_ids: bool = True


CASES: dict[str, Case] = {}


Told = Callable[[Story], None]


def case(
    expected: dict[int, tuple[Finding, int, int]] | None = None, *, with_ids: bool = True
) -> Callable[[Told], Told]:
    """Make a case of a function that tells what happens."""

    def made(tell: Told) -> Told:
        CASES[tell.__name__] = Case(tell, expected or {}, with_ids)
        return tell

    return made


def usual(story: Story, buckets: Sequence[int] = (0, 1, 2, 3, 5, 6, 7), **more: Any) -> None:
    for bucket in buckets:
        story.through(bucket, ids(bucket), **more)


@case({7: (Finding.LOST, 3, 0)})
def lost_at_the_end(story: Story) -> None:
    """Nothing was counted after it, and the group is known to have read everything."""
    usual(story, range(7))
    offsets = story.produce(7, ids(7))
    story.consume(7, ids(7)[:7], offsets[:7])


@case({7: (Finding.IN_PROGRESS, 0, 0)})
def perhaps_lost_at_the_end(story: Story) -> None:
    """As before, and nobody knows how far the group has read."""
    lost_at_the_end(story)


@case({4: (Finding.WITHIN_GONE, 0, 0)})
def lost_to_compaction(story: Story) -> None:
    """A later record of the same key took the place of these before they were read."""
    lost_by_the_group(story)


@case()
def fine(story: Story) -> None:
    usual(story, range(BUCKETS))


@case({4: (Finding.LOST, 3, 0)})
def lost_by_the_group(story: Story) -> None:
    usual(story, range(4))
    offsets = story.produce(4, ids(4))
    story.consume(4, ids(4)[:7], offsets[:7])
    usual(story, range(5, BUCKETS))


@case({4: (Finding.LOST, 1, 0)})
def lost_by_the_broker(story: Story) -> None:
    """Acked, and never in the log."""
    usual(story, range(4))
    story.count(CountTier.PRODUCED, 4, ["never"], client="web", partition=0)
    usual(story, range(4, BUCKETS))


@case({4: (Finding.DUPLICATED, 0, 1)})
def written_twice(story: Story) -> None:
    usual(story, range(BUCKETS))
    story.consume(4, ["4-3"], story.produce(4, ["4-3"], counted=False))


@case({4: (Finding.EXCHANGED, 1, 1)})
def lost_and_written_twice(story: Story) -> None:
    usual(story, range(4))
    story.produce(4, ids(4))
    story.consume(4, [*ids(4)[1:], "4-3"], range(40, 50))
    usual(story, range(5, BUCKETS))


@case(with_ids=False)
def exchanged_and_nobody_can_see_it(story: Story) -> None:
    lost_and_written_twice(story)


@case({4: (Finding.LOST, 1, 1)}, with_ids=False)
def exchanged_between_partitions(story: Story) -> None:
    for bucket in range(BUCKETS):
        for partition in range(2):
            faulty = bucket == 4
            offsets = story.produce(bucket, ids(bucket), partition=partition)
            left = ids(bucket, 9 + 2 * partition) if faulty else ids(bucket)
            story.consume(bucket, left, offsets, partition=partition)


@case()
def acked_in_other_partitions_than_read(story: Story) -> None:
    usual(story, partition=0)
    story.count(CountTier.PRODUCED, 4, ids(4), client="web", partition=1)
    story.consume(4, ids(4), range(100, 110), partition=0)


@case()
def partitions_that_nobody_knew(story: Story) -> None:
    usual(story)
    story.count(CountTier.REDRIVEN, 4, ids(4), client="redrive", partition=-1)
    story.consume(4, ids(4), range(100, 110), partition=0)


@case({4: (Finding.LOST, 2, 0)})
def redriven_and_lost(story: Story) -> None:
    usual(story)
    story.count(CountTier.REDRIVEN, 4, ids(4), client="redrive", partition=-1)
    story.consume(4, ids(4)[:8], range(100, 108), partition=0)


@case({4: (Finding.WITHIN_UNKNOWN, 0, 0)})
def of_which_nobody_knows(story: Story) -> None:
    usual(story, range(BUCKETS))
    story.count(CountTier.UNKNOWN, 4, ["x", "y"], client="web", partition=-1, ids=("x", "y"))
    story.consume(4, ["y"], range(100, 101), partition=0)


@case({2: (Finding.WITHIN_GONE, 0, 0)})
def gone_by_retention(story: Story) -> None:
    usual(story, (0, 1))
    offsets = story.produce(2, ids(2))
    story.consume(5, ids(2), offsets, tier=CountTier.GONE)
    usual(story, range(3, BUCKETS))


@case({2: (Finding.WITHIN_GONE, 0, 0), 4: (Finding.LOST, 3, 0), 5: (Finding.LOST, 2, 0)})
def lost_before_more_was_gone(story: Story) -> None:
    """Each offset that is gone explains one record, of the buckets that its neighbours are of."""
    usual(story, (0, 1))
    story.consume(6, (), story.produce(2, ids(2)), tier=CountTier.GONE, count=10)
    usual(story, (3,))
    for bucket, lost in ((4, 3), (5, 2)):
        offsets = story.produce(bucket, ids(bucket))
        story.consume(bucket, ids(bucket)[lost:], offsets[lost:])
    usual(story, (6, 7))


@case({2: (Finding.WITHIN_GONE, 0, 0), 3: (Finding.LOST, 4, 0)})
def lost_in_another_partition_than_what_was_gone(story: Story) -> None:
    for bucket in range(BUCKETS):
        for partition in range(2):
            offsets = story.produce(bucket, ids(bucket), partition=partition)
            lost = 4 if (bucket, partition) == (3, 1) else 0
            if (bucket, partition) == (2, 0):
                story.consume(5, (), offsets, tier=CountTier.GONE, count=10)
            else:
                left = ids(bucket)[lost:]
                story.consume(bucket, left, offsets[lost:], partition=partition)


@case({4: (Finding.IN_PROGRESS, 0, 0)})
def held_while_others_pass(story: Story) -> None:
    """Its copy cannot be written, say: the group's commits tell that it is not finished."""
    usual(story, range(4))
    offsets = story.produce(4, ids(4))
    story.consume(4, ids(4)[:3], offsets[:3])
    story.hold(offsets[3:4])
    story.consume(4, ids(4)[4:], offsets[4:])
    usual(story, range(5, BUCKETS))


@case({4: (Finding.LOST, 2, 0), 5: (Finding.IN_PROGRESS, 0, 0), 6: (Finding.LOST, 1, 0)})
def held_and_lost(story: Story) -> None:
    """What is not finished excuses as many records, where it lies."""
    usual(story, range(4))
    for bucket, held, lost in ((4, 1, 2), (5, 1, 0)):
        offsets = story.produce(bucket, ids(bucket))
        story.hold(offsets[5 : 5 + held])
        story.consume(bucket, ids(bucket)[:5], offsets[:5])
        behind = 5 + held + lost
        story.consume(bucket, ids(bucket)[behind:], offsets[behind:])
    story.count(CountTier.PRODUCED, 6, ["never"], client="web", partition=0)
    usual(story, (6, 7))


@case({2: (Finding.IN_PROGRESS, 0, 0), 7: (Finding.IN_PROGRESS, 0, 0)})
def not_read_yet_and_of_old_times(story: Story) -> None:
    """The group is behind: what it has not read may be of any bucket."""
    usual(story, (0, 1, 3, 4, 5, 6))
    story.hold(range(story.produce(2, ids(2)).start, story.produce(7, ids(7)).stop), anytime=True)


@case({2: (Finding.IN_PROGRESS, 0, 0)})
def copies_that_wait_out_of_order(story: Story) -> None:
    """In a retry topic neighbours tell nothing of the time when a record was sent."""
    usual(story, (0, 1, 3, 4), origin="orders")
    story.hold(story.produce(2, ids(2), origin="orders"))
    story.through(20, ids(20), origin="orders")


@case({6: (Finding.IN_PROGRESS, 0, 0), 7: (Finding.IN_PROGRESS, 0, 0)})
def behind(story: Story) -> None:
    """The group has not read on: what is final by the clock is on its way."""
    usual(story, range(6))
    for bucket in (6, 7):
        story.produce(bucket, ids(bucket))


@case({4: (Finding.IN_PROGRESS, 0, 0)})
def waits_in_a_retry_topic(story: Story) -> None:
    """Later buckets do not mean there that it was passed."""
    usual(story, range(4), origin="orders")
    story.produce(4, ids(4), origin="orders")
    usual(story, range(5, BUCKETS), origin="orders")


@case({0: (Finding.BEFORE, 0, 0), 1: (Finding.BEFORE, 0, 0)})
def group_that_began_later(story: Story) -> None:
    story.produce(0, ids(0))
    offsets = story.produce(1, ids(1))
    story.consume(1, ids(1)[5:], offsets[5:])
    usual(story, range(2, BUCKETS))


@case({0: (Finding.LOST, 5, 0)})
def group_that_began_at_the_beginning(story: Story) -> None:
    offsets = story.produce(0, ids(0))
    story.consume(0, ids(0)[:5], offsets[:5])
    usual(story, range(1, BUCKETS))


@case(dict.fromkeys(range(BUCKETS), (Finding.NOT_CONSUMED, 0, 0)))
def nobody_reads_it(story: Story) -> None:
    for bucket in range(BUCKETS):
        story.produce(bucket, ids(bucket))


@case(dict.fromkeys(range(BUCKETS), (Finding.UNAUDITED, 0, 0)))
def nobody_counts_who_writes(story: Story) -> None:
    for bucket in range(BUCKETS):
        story.consume(bucket, ids(bucket), story.produce(bucket, ids(bucket), counted=False))


@case(dict.fromkeys(range(4), (Finding.UNAUDITED, 0, 0)))
def producers_that_began_to_count(story: Story) -> None:
    """The one before the other, and nothing is called a duplicate meanwhile."""
    for bucket in range(3):
        story.consume(bucket, ids(bucket), story.produce(bucket, ids(bucket), counted=False))
    story.through(3, ids(3))
    story.consume(3, ["other"], story.produce(3, ["other"], counted=False))
    usual(story, range(4, BUCKETS))


@case(dict.fromkeys(range(12), (Finding.UNAUDITED, 0, 0)))
def one_of_the_producers_does_not_count(story: Story) -> None:
    """Nothing is said of its topic, be it short or not."""
    for bucket in range(12):
        offsets = story.produce(bucket, ids(bucket))
        lost = 1 if bucket == 5 else 0
        story.consume(bucket, ids(bucket)[lost:], offsets[lost:])
        if bucket != 5:
            story.consume(bucket, ["other"], story.produce(bucket, ["other"], counted=False))


@case({3: (Finding.UNCOUNTED, 0, 0), 4: (Finding.UNCOUNTED, 0, 0), 5: (Finding.UNCOUNTED, 0, 0)})
def workers_that_ceased_to_count_for_a_while(story: Story) -> None:
    usual(story, range(3))
    half = story.produce(3, ids(3))
    story.consume(3, ids(3)[:5], half[:5])
    story.end()
    story.produce(4, ids(4))
    half = story.produce(5, ids(5))
    again: Any = {"incarnation": "2", "epoch_ms": NOON_MS + 5 * MINUTE_MS}
    story.consume(5, ids(5)[5:], half[5:], **again)
    usual(story, (6, 7), **again)


@case({4: (Finding.LOST, 3, 0)})
def lost_where_the_partition_changed_hands(story: Story) -> None:
    usual(story, range(4))
    offsets = story.produce(4, ids(4))
    story.consume(4, ids(4)[:7], offsets[:7])
    story.end()
    again = {"incarnation": "2", "epoch_ms": NOON_MS + 5 * MINUTE_MS}
    usual(story, range(5, BUCKETS), **again)


@case({4: (Finding.UNCOUNTED, 0, 0)})
def worker_that_died_with_its_log(story: Story) -> None:
    """It never said its last words: its counts may be what is missing."""
    usual(story, range(4))
    offsets = story.produce(4, ids(4))
    story.consume(4, ids(4)[:7], offsets[:7])
    again = {"incarnation": "2", "epoch_ms": NOON_MS + 6 * MINUTE_MS}
    usual(story, range(5, BUCKETS), **again)


@case({4: (Finding.UNCOUNTED, 0, 0)})
def counts_that_could_not_be_written(story: Story) -> None:
    usual(story, range(4))
    offsets = story.produce(4, ids(4))
    story.consume(4, ids(4)[:7], offsets[:7])
    story.through(5, ids(5), lost=3)
    usual(story, (6, 7))


@case({2: (Finding.LOST, 3, 0), 4: (Finding.UNCOUNTED, 0, 0)})
def lost_where_counts_could_not_be_written(story: Story) -> None:
    """A count that is missing explains one record, and no other of its group's."""
    usual(story, range(2))
    for bucket in (2, 4):
        offsets = story.produce(bucket, ids(bucket))
        story.consume(bucket, ids(bucket)[3:], offsets[3:])
        usual(story, (bucket + 1,), lost=3 if bucket == 4 else 0)
    usual(story, (6, 7))


@case({b: (Finding.UNAUDITED, 0, 0) if b != 5 else (Finding.LOST, 4, 0) for b in range(12)})
def lost_beside_chronic_duplicates(story: Story) -> None:
    """More than any bucket of its partition has too much: nobody who does not count hides that."""
    for bucket in range(12):
        for partition in range(2):
            lost = 4 if (bucket, partition) == (5, 1) else 0
            offsets = story.produce(bucket, ids(bucket), partition=partition)
            left = ids(bucket)[lost:]
            story.consume(bucket, left, offsets[lost:], partition=partition)
        story.consume(bucket, ["again"], story.produce(bucket, ["again"], counted=False))


@case()
def of_several_lengths(story: Story) -> None:
    """Buckets of who writes are a minute long, those of the group four."""
    for bucket in range(BUCKETS):
        offsets = story.produce(bucket, ids(bucket))
        story.consume(bucket, ids(bucket), offsets, length_ms=4 * MINUTE_MS)


@case({4: (Finding.BALANCED, 0, 0)})
def late(story: Story) -> None:
    """One count came when all was final: that was long ago."""
    usual(story)
    story.consume(4, ids(4), story.produce(4, ids(4)), at=30)


@case({4: (Finding.BALANCED, 0, 0)})
def later(story: Story) -> None:
    usual(story)
    story.consume(4, ids(4), story.produce(4, ids(4)), at=NOW - GRACE + 1)


@case({4: (Finding.IN_PROGRESS, 0, 0)})
def of_old_times(story: Story) -> None:
    """Somebody writes records of a time long ago, just now."""
    usual(story)
    story.produce(4, ids(4), at=NOW - 1)


SHOULD_BE_SEEN = {
    "late": {4: (State.FINAL, True)},
    "later": {4: (State.REOPENED, True)},
    "of_old_times": {4: (State.CLOSING, False)},
}
"""The states that are not final, and those that were re-opened."""


@pytest.fixture(scope="module")
def report(spark: SparkSession) -> AuditReport:
    stories = []
    for name, each in CASES.items():
        story = Story(name, with_ids=each.with_ids)
        each.tell(story)
        stories.append(story)
    rules = Rules(
        now_ms=NOON_MS + NOW * MINUTE_MS,
        grace_ms=GRACE * MINUTE_MS,
        compacted=["lost_to_compaction"],
    )
    through = spark.createDataFrame(
        [("readers-of-lost_at_the_end", "lost_at_the_end", 0)],
        "`group` string, topic string, partition int",
    )
    held = spark.createDataFrame([each for story in stories for each in story.held], HELD)
    scope = Scope(since_ms=NOON_MS)
    made = audit_report.report(counted(spark, stories), rules, scope, through, held)
    return AuditReport(made.findings.cache(), made.latencies, made.explain)


@pytest.fixture(scope="module")
def found(report: AuditReport) -> dict[str, Found]:
    rows = report.findings.collect()
    buckets: dict[str, Found] = {name: {} for name in CASES}
    for row in rows:
        read_by = f"readers-of-{row.topic}"
        assert row.group == ("" if row.finding == Finding.NOT_CONSUMED else read_by)
        buckets[row.topic][(row.bucket_ms - NOON_MS) // MINUTE_MS] = row
    return buckets


@pytest.mark.parametrize("name", CASES)
def test_each_planted_fault_is_found_and_no_other(name: str, found: dict[str, Found]) -> None:
    odd = {
        bucket: (row.finding, row.lost, row.duplicated)
        for bucket, row in found[name].items()
        if row.finding != Finding.BALANCED
    }
    expected = {
        b: reported
        for b, reported in CASES[name].expected.items()
        if reported[0] != Finding.BALANCED
    }
    assert odd == expected
    assert len(found[name]) >= 2


@pytest.mark.parametrize("name", CASES)
def test_a_late_count_reopens_a_bucket(name: str, found: dict[str, Found]) -> None:
    """... and only what is seen after a silence longer than the grace period is late."""
    states = {
        bucket: (row.state, row.was_reopened)
        for bucket, row in found[name].items()
        if (row.state, row.was_reopened) != (State.FINAL, False)
    }
    assert states == SHOULD_BE_SEEN.get(name, {})


def test_what_is_in_quarantine_is_uncounted(spark: SparkSession) -> None:
    """... and explains as many records as it counts, where it counts them."""
    story = Story("of_a_later_version")
    usual(story)
    offsets = story.produce(4, ids(4))
    story.consume(4, ids(4)[:4], offsets[:4])
    story.consume(4, ids(4)[5:], offsets[5:])
    _, last = story.written.pop()
    record = json.loads(encode([last]))
    record["counts"][0]["tier"] = "mislaid"
    row = ("audit", "", "wc.audit", 0, 0, *broken(json.dumps(record).encode()))
    noise = ("audit", "", "wc.audit", 0, 1, *broken(b"noise"))
    unread = audit.unread(spark.createDataFrame([row, noise], QUARANTINE))
    rows = counted(spark, [story]).unionByName(unread)
    rules = Rules(now_ms=NOON_MS + NOW * MINUTE_MS, grace_ms=GRACE * MINUTE_MS)
    found = audit_report.report(rows, rules, Scope(since_ms=NOON_MS)).findings
    [four] = [row for row in found.collect() if row.finding != Finding.BALANCED]
    assert (four.finding, four.uncounted, four.lost) == (Finding.LOST, 5, 1)


def broken(value: bytes) -> tuple[datetime, bytes]:
    return datetime.fromtimestamp(NOON_MS / 1000, UTC), value


def test_the_report_for_people_says_what_is_lost_first(
    report: AuditReport, capsys: pytest.CaptureFixture[str]
) -> None:
    found = print_report(report, NOON_MS, NOON_MS + NOW * MINUTE_MS)
    assert {Finding.LOST, Finding.EXCHANGED, Finding.BALANCED} <= found
    said = capsys.readouterr().out
    topics, buckets = said.split("\n\n")
    assert "\nfine, readers-of-fine: buckets: 8 balanced\n" in topics
    lines = buckets.splitlines()[1:]
    is_lost = [" final  lost " in line or " exchanged " in line for line in lines]
    assert is_lost == sorted(is_lost, reverse=True)
    assert sum(is_lost) == sum(
        lost > 0 for c in CASES.values() for _, lost, _ in c.expected.values()
    )


def test_a_bucket_is_explained_by_its_records(
    report: AuditReport, capsys: pytest.CaptureFixture[str], golden: Golden
) -> None:
    asked = ("fine", "lost_by_the_group", "written_twice", "of_which_nobody_knows")
    rows = report.explain(NOON_MS + 4 * MINUTE_MS).where(F.col("topic").isin(*asked)).cache()
    print_explanation(rows, as_json=False)
    said = capsys.readouterr().out
    assert "fine" not in said
    golden(said)
    print_explanation(rows, as_json=True)
    objects = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert {"what": "explanation", "missing": [[47, 50]]}.items() <= objects[0].items()


def test_a_bucket_that_is_not_there_is_an_error(report: AuditReport, golden: Golden) -> None:
    """... and what is found in one that is there decides about the exit code."""
    assert Finding.LOST in findings_in(report, NOON_MS + 4 * MINUTE_MS)
    for start_ms in (NOON_MS + 4 * MINUTE_MS + 1, NOON_MS + 90 * MINUTE_MS, 0):
        with golden.raises(UsageError):
            findings_in(report, start_ms)


def test_a_table_that_is_not_there_is_an_error(
    spark: SparkSession, tmp_path: Path, golden: Golden
) -> None:
    (tmp_path / "empty").mkdir()
    for path in (tmp_path / "nowhere", tmp_path / "empty"):
        with golden.raises(NoCountsError):
            audit_report.counts(spark, str(path), NOON_MS)
