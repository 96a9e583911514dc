"""Spark balances an audit as the model does, over random histories."""

from __future__ import annotations

import json
from collections.abc import Sequence
from datetime import UTC, datetime
from random import Random
from time import monotonic
from typing import TYPE_CHECKING, Any

import attrs

from tests.pipeline.audit_history import MINUTE_MS
from window_consumer.audit import balance as audit_balance
from window_consumer.audit.balance import Balance, BalanceVerdict, Sum
from window_consumer.audit.count import WRITTEN, AuditCount, CountTier, encode, signed64
from window_consumer.audit.spark import counts as audit
from window_consumer.audit.spark.partition_totals import sides
from window_consumer.spark import tables

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

HISTORIES = 300
SHAPE = "value binary, timestamp timestamp"


def history(rng: Random, topic: str) -> list[AuditCount]:
    """Return counts of one topic, such that offsets run again and sums sometimes balance."""
    found: list[AuditCount] = []
    ids = [signed64(rng.getrandbits(64)) for _ in range(rng.randrange(1, 6))]
    # Near the border of a stretch of offsets, too.
    start = rng.choice([0, audit._STRETCH - 20])
    with_ids = rng.random() < 0.8
    for sequence in range(rng.randrange(1, 10)):
        tier = rng.choice([CountTier.PRODUCED, *CountTier])
        is_written = tier in WRITTEN or tier is CountTier.UNKNOWN
        offsets, at = [], start + rng.randrange(40)
        for _ in range(0 if is_written else rng.randrange(1, 3)):
            offsets.append((at, at + rng.randrange(1, 9)))
            at = offsets[-1][1] + rng.randrange(1, 5)
        chosen = ids if rng.random() < 0.6 else rng.choices(ids, k=rng.randrange(len(ids) + 1))
        xor = 0
        for each in chosen:
            xor ^= each
        count = AuditCount(
            client=rng.choice("ab"),
            incarnation=f"{topic}-{rng.randrange(2)}",
            sequence=sequence,
            tier=tier,
            app="shop",
            instance="host:1",
            group="" if is_written else rng.choice(["one", "other"]),
            topic=topic,
            partition=0,
            topic_hash=rng.choice([0, 0, 7, 2**64 - 9]),
            bucket_ms=rng.choice([0, 60_000]),
            length_ms=60_000,
            epoch_ms=0 if is_written else rng.randrange(3),
            offsets=tuple(offsets),
            count=len(chosen),
            id_xor=signed64(xor) if with_ids else None,
            id_sum=signed64(sum(chosen)) if with_ids else None,
            latency={3: len(chosen)},
        )
        found.append(count)
        if rng.random() < 0.3 and not is_written:
            found.append(_counterpart(count))
    return found


def _counterpart(count: AuditCount) -> AuditCount:
    """What was written of it: such buckets balance."""
    return attrs.evolve(
        count,
        tier=CountTier.PRODUCED,
        group="",
        epoch_ms=0,
        offsets=(),
        latency={},
        client=f"producer-{count.client}",
    )


def rows_of(spark: SparkSession, values: Sequence[bytes]) -> DataFrame:
    rows = [(value, datetime(2026, 1, 2, tzinfo=UTC)) for value in values]
    records = spark.createDataFrame(rows, SHAPE)
    return audit.counts(tables.readable(audit.read(records)))


def test_it_says_what_the_model_says(spark: SparkSession) -> None:
    rng = Random(1)
    counts = [each for n in range(HISTORIES) for each in history(rng, f"topic-{n}")]
    values = [encode(counts[n : n + 7]) for n in range(0, len(counts), 7)]
    values += values[:9]  # sent again
    rng.shuffle(values)
    judged = audit.effective(rows_of(spark, values)).cache()
    expected = audit_balance.effective(counts)
    gone = {
        (row.client, row.incarnation, row.sequence) for row in judged.where("replaced").collect()
    }
    assert gone == {each.audit_id for each in expected.replaced}
    assert judged.count() == len(expected.counts) + len(expected.replaced)
    rows = sides(judged, grace_ms=MINUTE_MS).collect()
    found = {
        (row.topic, row.group, row.bucket_ms): (
            row[str(CountTier.UNKNOWN)],
            (row.came, row.came_xor, row.came_sum, row.came_ids),
            (row.left, row.left_xor, row.left_sum, row.left_ids),
        )
        for row in rows
    }
    balances = audit_balance.balance(expected.counts)
    assert found == {
        (each.topic, each.group, each.bucket_ms): (each.unknown, *figures(each))
        for each in balances
    }
    assert len(rows) == len(found)
    assert {each.verdict for each in balances} == set(BalanceVerdict)


Figures = tuple[int, int, int, bool]
"""How many, their checksums, and whether all of them have one."""


def figures(balance: Balance) -> tuple[Figures, Figures]:
    """Return what came and what left."""
    came, left = Sum(), Sum()
    for tier, each in balance.tiers.items():
        if tier is not CountTier.UNKNOWN:
            into = came if tier in WRITTEN else left
            into.count += each.count
            into.id_xor ^= each.id_xor
            into.id_sum = signed64(into.id_sum + each.id_sum)
            into.has_ids = into.has_ids and each.has_ids
    assert (came.count, left.count) == (balance.came, balance.left)
    return (
        (came.count, *came.checksums, came.has_ids),
        (left.count, *left.checksums, left.has_ids),
    )


def epochs(pieces: int) -> list[AuditCount]:
    """Three assignments of one partition, each of which has counted a stretch in small pieces.

    The second one's pieces lie half over the first one's, the third one's behind them.
    """
    length = 5
    first_of = {1: 0, 2: pieces * length // 2 + 2, 3: pieces * length * 2}
    return [
        attrs.evolve(
            COUNT,
            incarnation=str(epoch),
            epoch_ms=epoch,
            sequence=number,
            offsets=((first + number * length, first + (number + 1) * length),),
        )
        for epoch, first in first_of.items()
        for number in range(pieces)
    ]


def test_epochs_that_share_a_stretch_take_time_as_their_pieces(spark: SparkSession) -> None:
    """... and not as their pairs: a piece is what half a second has brought."""
    seconds = {}
    for pieces in (100, 800):
        counts = epochs(pieces)
        values = [encode(counts[n : n + 50]) for n in range(0, len(counts), 50)]
        began = monotonic()
        rows = audit.effective(rows_of(spark, values)).where("replaced").collect()
        seconds[pieces] = monotonic() - began
        gone = {(row.client, row.incarnation, row.sequence) for row in rows}
        assert gone == {each.audit_id for each in audit_balance.effective(counts).replaced}
        assert len(gone) == pieces // 2
    assert seconds[800] < 6 * seconds[100]


def record(*given: dict[str, Any], **more: Any) -> bytes:
    """Return a record of counts with these fields."""
    known = json.loads(encode([COUNT]))
    known["counts"] = [{**known["counts"][0], **each} for each in given]
    return json.dumps({**known, **more}).encode()


COUNT = AuditCount(
    client="worker",
    incarnation="1",
    sequence=1,
    tier=CountTier.FINISHED,
    app="shop",
    instance="host:1",
    topic="orders",
    bucket_ms=60_000,
    length_ms=60_000,
    offsets=((0, 3),),
    count=3,
)
NO_NUMBER = "a number that cannot be"
BROKEN = {
    b"": "malformed",
    b"no json": "malformed",
    b"[1, 2]": "malformed",
    b"{}": "malformed",
    record({})[:-9]: "malformed",
    record({}, format=2): "format 2",
    record({}, counts=None): "malformed",
    record({"count": "three"}): "malformed",
    record({"topic_hash": 10**30}): "malformed",
    record({}, counts=[None]): "a count without what it needs",
    record({"client": None}): "a count without what it needs",
    record({}, {"tier": "mislaid"}): "a count without what it needs",
    record({"count": -1}): NO_NUMBER,
    record({}, {"count": 2**62}): NO_NUMBER,
    record({"bytes": 2**62}): NO_NUMBER,
    record({"without_timestamp": 2**62}): NO_NUMBER,
    record({"skewed": 2**62}): NO_NUMBER,
    record({"lost": 2**62}): NO_NUMBER,
    record({"length_ms": 2**62}): NO_NUMBER,
    record({"latency": {"3": 2**62}}): NO_NUMBER,
    record({"offsets": [[0, 2**62]]}): NO_NUMBER,
    record({"offsets": [[-(2**62), 2**62]]}): NO_NUMBER,
    record({"offsets": [[3, 0]]}): NO_NUMBER,
    record({"offsets": [[0, 3], [5]]}): NO_NUMBER,
    record({"offsets": [[]]}): NO_NUMBER,
    record({"offsets": [None]}): NO_NUMBER,
}


def test_what_no_count_can_say_is_reported_with_a_reason(spark: SparkSession) -> None:
    """... before it ends every job or report: a sum of it is more than a long holds."""
    values = [*BROKEN, record({})]
    rows = [(number, value) for number, value in enumerate(values)]
    judged = audit.read(spark.createDataFrame(rows, "number int, value binary"))
    found = {row.number: row.reason for row in judged.select("number", "reason").collect()}
    assert [found[number] for number in range(len(values))] == [*BROKEN.values(), None]


def test_times_that_are_no_milliseconds_are_none(spark: SparkSession) -> None:
    """What a producer takes for milliseconds may be nanoseconds."""
    micros, nanos = 1_767_355_200_000_000, 1_767_355_200_000_000_000
    values = [
        record(*[{"bucket_ms": bucket, "sequence": bucket, "tier": tier}])
        for bucket in (60_000, micros, nanos, -nanos)
        for tier in ("produced", "finished")
    ]
    rows = rows_of(spark, values)
    assert {(row.bucket_ms, str(row.day)) for row in rows.collect()} == {
        (60_000, "1970-01-01"),
        (0, "1970-01-01"),
    }
    added = rows.groupBy("bucket_ms", "tier").sum("count").collect()
    assert {(bucket_ms, tier): count for bucket_ms, tier, count in added} == {
        (bucket_ms, tier): count
        for bucket_ms, count in ((60_000, 3), (0, 9))
        for tier in ("produced", "finished")
    }
