"""Latencies of many counts, put together, are those of all their records."""

from __future__ import annotations

from random import Random
from typing import TYPE_CHECKING, Any

from tests.pipeline.audit_history import Story, counted
from window_consumer.audit.count import CountTier, latency_bounds, latency_bucket
from window_consumer.audit.spark.counts import effective
from window_consumer.audit.spark.report import latencies

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def least_ms(took_ms: list[int], share: float) -> int:
    """Return where the bucket begins of the record that so many of a hundred do not exceed."""
    at = max(0, -int(-len(took_ms) * share // 1) - 1)
    return latency_bounds(latency_bucket(sorted(took_ms)[at]))[0]


def test_they_are_reported_by_group_and_by_host(spark: SparkSession) -> None:
    rng, story = Random(2), Story("orders")
    took: dict[str, list[int]] = {"one": [], "two": []}
    for bucket in range(6):
        host = rng.choice(["one", "two"])
        found = [int(rng.lognormvariate(6, 3)) for _ in range(rng.randrange(1, 60))]
        took[host] += found
        latency: dict[int, int] = {}
        for each in found:
            latency[latency_bucket(each)] = latency.get(latency_bucket(each), 0) + 1
        retried: Any = {"topic": "shop.orders.retry.1s", "origin": "orders"} if bucket == 3 else {}
        story.through(bucket, ["x"], client=host, latency=latency, **retried)
    story.count(
        CountTier.DEAD_LETTERED,
        0,
        ["y"],
        client="one",
        group=story.group,
        latency={0: 100},
        partition=0,
    )
    rows = latencies(effective(counted(spark, [story]))).collect()
    expected = {
        host: (len(each), *(least_ms(each, share) for share in (0.5, 0.95, 0.99)))
        for host, each in ((None, took["one"] + took["two"]), *took.items())
    }
    names = {None: None, "one": "one-of-orders-host", "two": "two-of-orders-host"}
    assert {(row.topic, row.group) for row in rows} == {("orders", story.group)}
    assert {row.host: tuple(row)[3:] for row in rows} == {
        names[host]: reported for host, reported in expected.items()
    }
