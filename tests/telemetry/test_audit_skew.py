"""Clocks that differ are noticed by records that cannot be as old as they say."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tests.engine.driver import Driven
from tests.engine.support import ORDERS, Note
from window_consumer.audit.consumer import AuditRules, ConsumerAudit
from window_consumer.audit.sums import SkewWatch

WALL_MS = 1_700_000_000_000
HOUR_MS = 3_600_000


def is_skewed(age_ms: int, *, after_s: float = 10.0, offset: int = 5) -> bool:
    """Hear that the log ends at 5, and get a record that is so old by our clock."""
    watch = SkewWatch(0.0)
    watch.check(5, Note(4, written_ms=WALL_MS), 0.0, WALL_MS)
    wall_ms = WALL_MS + int(after_s * 1000)
    watch.check(5, Note(offset, written_ms=wall_ms - age_ms), after_s, wall_ms)
    return watch.is_skewed


def test_a_record_that_is_older_than_it_can_be_tells_that_clocks_differ() -> None:
    assert is_skewed(HOUR_MS)
    assert not is_skewed(5_000)


def test_a_record_that_has_waited_for_an_hour_tells_nothing() -> None:
    assert not is_skewed(HOUR_MS, offset=4)
    assert not is_skewed(HOUR_MS, after_s=3_600.0)


def test_a_consumer_an_hour_ahead_counts_in_the_producers_bucket_and_tells_no_latency() -> None:
    rows: list[Mapping[str, Any]] = []
    driven = Driven(names=(), slots=1)
    driven.engine.observe(
        ConsumerAudit("shop", AuditRules(), rows.extend, lambda: WALL_MS + HOUR_MS)
    )
    driven.assign(ORDERS)
    driven.engine.on_log_ends({ORDERS: 1})
    for offset in range(2):
        driven.now += 1.0
        driven.deliver(Note(offset, written_ms=WALL_MS))
    driven.tick()
    driven.finish_all()
    driven.engine.on_revoked([ORDERS], driven.now)
    assert sum(row["count"] for row in rows) == 2
    assert {row["bucket_ms"] for row in rows} == {WALL_MS // 60_000 * 60_000}
    assert [(row["skewed"], row["latency"]) for row in rows] == [(2, {})]
