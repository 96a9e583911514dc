"""Sums of records: each in the bucket of its producer's timestamp, and how long it took."""

from __future__ import annotations

from collections import Counter

from hypothesis import given, settings
from hypothesis import strategies as st

from window_consumer.audit.count import CountTier, latency_bucket
from window_consumer.audit.sums import Columns, SumsByBucket, Timestamp, id_hash

WALL_MS = 1_700_000_000_000
MINUTE_MS = 60_000
HOUR_MS = 3_600_000


def summed(*stamps: Timestamp, skew: bool = False) -> SumsByBucket:
    sums = SumsByBucket(MINUTE_MS)
    sizes = [1] * len(stamps)
    plain = [ms for kind, ms in stamps if kind == 1]
    if len(plain) == len(stamps):
        sums.add(CountTier.FINISHED, Columns(plain, sizes, None, WALL_MS, skew))
    else:
        sums.add(CountTier.FINISHED, Columns((), sizes, None, WALL_MS, skew, stamps))
    return sums


@settings(max_examples=60)
@given(st.lists(st.integers(-4_000, 200_000), min_size=1, max_size=40))
def test_every_record_is_in_its_bucket_of_time_and_of_latency(ages: list[int]) -> None:
    found = summed(*[(1, WALL_MS - age) for age in ages])
    buckets = Counter((WALL_MS - age) // MINUTE_MS * MINUTE_MS for age in ages)
    assert {bucket: sums.count for (_, bucket), sums in found.items()} == buckets
    latencies: Counter[int] = Counter()
    for sums in found.values():
        latencies.update(sums.latency)
    assert latencies == Counter(latency_bucket(max(0, age)) for age in ages)


def test_a_bucket_begins_with_its_first_millisecond_and_ends_before_the_next_ones() -> None:
    start = WALL_MS // MINUTE_MS * MINUTE_MS
    found = summed((1, start - 1), (1, start), (1, start + MINUTE_MS - 1))
    counts = {bucket: sums.count for (_, bucket), sums in found.items()}
    assert counts == {start - MINUTE_MS: 1, start: 2}


def test_records_of_a_clock_that_is_an_hour_ahead_are_skewed_and_in_their_bucket() -> None:
    found = summed((1, WALL_MS + HOUR_MS), (1, WALL_MS - 10))
    reported = {bucket: (each.count, each.skewed) for (_, bucket), each in found.items()}
    here = WALL_MS // MINUTE_MS * MINUTE_MS
    assert reported == {here + HOUR_MS: (1, 1), here: (1, 0)}


def test_records_of_a_clock_that_is_known_to_differ_have_no_latency() -> None:
    (sums,) = summed((1, WALL_MS - HOUR_MS), (1, WALL_MS - HOUR_MS), skew=True).values()
    assert (sums.count, sums.skewed, sums.latency) == (2, 2, {})


def test_records_without_a_producers_timestamp_are_distinguished() -> None:
    found = summed((0, -1), (0, 0), (2, WALL_MS))
    reported = {
        bucket: (s.count, s.without_timestamp, s.latency) for (_, bucket), s in found.items()
    }
    assert reported == {0: (2, 2, {}), WALL_MS // MINUTE_MS * MINUTE_MS: (1, 1, {})}


def test_ids_have_the_hash_that_spark_can_compute() -> None:
    # md5('orders/0/1') in Spark begins with these 16 digits.
    assert f"{id_hash(b'orders/0/1'):016x}" == "04380db3ef320890"
