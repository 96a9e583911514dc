"""How far buckets are, over random histories: as told by whoever reads the counts one by one."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from datetime import UTC, datetime
from itertools import pairwise
from random import Random
from typing import TYPE_CHECKING

import attrs
import pytest
from attrs import frozen

from tests.pipeline.audit_history import MINUTE_MS, NOON_MS
from tests.pipeline.test_audit import history
from window_consumer.audit import balance as audit_balance
from window_consumer.audit.count import WRITTEN, AuditCount, CountTier, encode
from window_consumer.audit.spark import counts as audit
from window_consumer.audit.spark.findings import Rules, bucket_findings
from window_consumer.audit.states import State
from window_consumer.spark import tables

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

HISTORIES = 200
MINUTES = 90
"""After the first bucket, in which counts come; then is asked."""

Bucket = tuple[str, str, int]
"""A topic, a group and a start."""


@frozen
class Arrived:
    """A count, and the second at which it came to Kafka."""

    count: AuditCount
    second: int

    def is_for(self, bucket: Bucket) -> bool:
        topic, group, start_ms = bucket
        each = self.count
        is_its = each.tier in WRITTEN or each.tier is CountTier.UNKNOWN or each.group == group
        return is_its and (each.topic, each.bucket_ms) == (topic, start_ms)


def arrivals(rng: Random) -> Iterator[Arrived]:
    """Yield counts of buckets of some minutes, which came in time, late, or long after."""
    for number in range(HISTORIES):
        most_late = rng.choice([1, 15, MINUTES])
        for count in history(rng, f"topic-{number}"):
            # Those without a timestamp stay so.
            minute = rng.choice([0, 1, 20, 70, MINUTES]) if count.bucket_ms else None
            start_ms = 0 if minute is None else NOON_MS + minute * MINUTE_MS
            ends_at = (minute or 0) + 1
            at = min(MINUTES, ends_at + rng.choice([0, 0, rng.uniform(-1, most_late)]))
            second = int(NOON_MS / 1000 + at * 60)
            yield Arrived(attrs.evolve(count, bucket_ms=start_ms), second)


def expected(reported: Iterable[Arrived], rules: Rules) -> dict[Bucket, tuple[str, bool]]:
    """Return the state of each bucket, and whether a count came after it had been silent."""
    counts = audit_balance.effective([each.count for each in reported]).counts
    valid = {each.audit_id for each in counts}
    live = [each for each in reported if each.count.audit_id in valid]
    states = {}
    for balance in audit_balance.balance(counts):
        bucket = balance.topic, balance.group, balance.bucket_ms
        mine = [
            each for each in live if each.is_for(bucket) and each.count.tier is not CountTier.GONE
        ]
        end = (balance.bucket_ms + MINUTE_MS) // 1000
        seconds = sorted(max(each.second, end) for each in mine)
        is_late = any((b - a) * 1000 > rules.grace_ms for a, b in pairwise(seconds))
        states[bucket] = (
            _state(balance.bucket_ms, seconds[-1] * 1000, rules, is_late=is_late),
            is_late,
        )
    return states


def _state(start_ms: int, counted_ms: int, rules: Rules, *, is_late: bool) -> str:
    if not start_ms or start_ms + MINUTE_MS > rules.now_ms:
        return State.OPEN
    if counted_ms + rules.grace_ms <= rules.now_ms:
        return State.FINAL
    return State.REOPENED if is_late else State.CLOSING


@pytest.fixture(scope="module")
def reported() -> list[Arrived]:
    return list(arrivals(Random(3)))


@pytest.fixture(scope="module")
def judged(spark: SparkSession, reported: list[Arrived]) -> DataFrame:
    """What counts of them, as the audit's table has them: in no order, and some twice."""
    rng = Random(5)
    rows = [(encode([each.count]), datetime.fromtimestamp(each.second, UTC)) for each in reported]
    # Sent again, and later: what was known before says nothing new.
    again = datetime.fromtimestamp((NOON_MS + MINUTES * MINUTE_MS) // 1000, UTC)
    rows += [(value, again) for value, _ in rng.choices(rows, k=20)]
    rng.shuffle(rows)
    records = spark.createDataFrame(rows, "value binary, timestamp timestamp")
    return audit.effective(audit.counts(tables.readable(audit.read(records)))).localCheckpoint()


@pytest.mark.parametrize("grace_ms", [10 * MINUTE_MS, MINUTE_MS + 500, 0])
def test_states_are_as_the_counts_came(
    judged: DataFrame, reported: list[Arrived], grace_ms: int
) -> None:
    rules = Rules(now_ms=NOON_MS + MINUTES * MINUTE_MS + 999, grace_ms=grace_ms)
    found = {
        (row.topic, row.group, row.bucket_ms): (row.state, row.was_reopened)
        for row in bucket_findings(judged, rules).collect()
    }
    should = expected(reported, rules)
    assert found == should
    states = {state for state, _ in should.values()}
    assert states == set(State) - ({State.CLOSING, State.REOPENED} if not grace_ms else set())
    assert {is_late for _, is_late in should.values()} == {False, True}
