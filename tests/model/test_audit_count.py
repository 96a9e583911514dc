"""The shape of a count: what is written can be read, and latencies have fixed buckets."""

from __future__ import annotations

import json
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from window_consumer.audit.count import (
    AuditCount,
    CountTier,
    decode,
    encode,
    latency_bounds,
    latency_bucket,
    signed64,
)

COUNT = AuditCount(
    client="charge",
    incarnation="0001",
    sequence=7,
    tier=CountTier.FINISHED,
    app="shop",
    instance="host:1",
    group="shop-charge",
    topic="orders",
    partition=3,
    bucket_ms=60_000,
    length_ms=60_000,
    epoch_ms=61_000,
    offsets=((0, 10), (12, 13)),
    count=11,
    bytes=110,
    id_xor=-5,
    id_sum=9,
    latency={3: 10, 40: 1},
)


def test_a_count_is_read_as_it_was_written() -> None:
    least = AuditCount(
        client="a",
        incarnation="b",
        sequence=1,
        tier=CountTier.UNKNOWN,
        app="",
        instance="",
        topic="t",
        bucket_ms=0,
        length_ms=1000,
        count=0,
        ids=("x", "ü"),
        final=True,
        lost=4,
    )
    assert decode(encode([COUNT, least])) == [COUNT, least]


def test_what_says_nothing_takes_no_room() -> None:
    (plain,) = json.loads(encode([COUNT]))["counts"]
    assert "final" not in plain
    assert "skewed" not in plain
    assert plain["count"] == 11


def test_keys_of_later_versions_are_ignored() -> None:
    plain = json.loads(encode([COUNT]))
    plain["counts"][0]["colour"] = "red"
    assert decode(json.dumps(plain).encode()) == [COUNT]


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"{",
        b"[]",
        b'{"format":2,"counts":[]}',
        b'{"format":1}',
        b'{"format":1,"counts":[{"tier":"lost"}]}',
        b'{"format":1,"counts":[{"tier":"finished"}]}',
        b'{"format":1,"counts":[7]}',
    ],
)
def test_anything_else_is_refused(data: bytes) -> None:
    with pytest.raises(ValueError, match=r".+"):
        decode(data)


@given(st.integers(0, 2**50))
def test_a_latency_lies_in_its_bucket_which_is_an_eighth_wide(milliseconds: int) -> None:
    start, stop = latency_bounds(latency_bucket(milliseconds))
    assert start <= milliseconds < stop
    assert stop - start == 1 or stop - start <= start / 8


def test_buckets_of_latency_follow_each_other_without_a_hole() -> None:
    ends = [latency_bounds(bucket) for bucket in range(200)]
    assert ends[0] == (0, 1)
    assert all(one[1] == other[0] for one, other in pairwise(ends))


def test_checksums_are_what_spark_can_hold() -> None:
    assert signed64(2**64 - 1) == -1
    assert signed64(2**63) == -(2**63)
    assert signed64(2**64 + 5) == 5
