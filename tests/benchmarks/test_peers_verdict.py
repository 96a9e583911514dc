from __future__ import annotations

import pytest
from attrs import evolve

from benchmarks.peers.contents import Contents, fill
from benchmarks.peers.verdict import Verdict, judge
from tests.benchmarks.peers import ALL_COMMITTED, CONTENTS, FILLED, MS, Entry, faultless, journal

COUNTS = ("lost", "repeated", "out_of_order", "at_once", "uncommitted")


def judged(entries: list[Entry]) -> Verdict:
    return judge(journal(entries), FILLED, ALL_COMMITTED)


def faults(verdict: Verdict) -> dict[str, int]:
    return {name: getattr(verdict, name) for name in COUNTS if getattr(verdict, name)}


def same_key() -> tuple[int, int]:
    """Return two records of one key, one after the other."""
    first = next(n for n, key in enumerate(FILLED.keys) if key in FILLED.keys[n + 1 :])
    return first, FILLED.keys.index(FILLED.keys[first], first + 1)


def test_a_faultless_run_has_no_faults() -> None:
    found = judged(faultless())
    assert faults(found) == {}
    assert found.complete
    assert found.handled == found.records == CONTENTS.records


def test_rate_and_waits_are_those_of_the_journal() -> None:
    found = judged(faultless())
    assert found.seconds == pytest.approx((3 * (CONTENTS.records - 1) + 2) / 1000)
    assert found.p50_ms == pytest.approx(7.0)
    assert found.p99_ms == pytest.approx(7.0)


def test_the_99th_percentile_is_that_of_the_slowest_in_a_hundred() -> None:
    entries = faultless()
    number, fetched, begun, ended = entries[-1]
    entries[-1] = (number, fetched - 500 * MS, begun, ended)
    found = judged(entries)
    assert found.p50_ms == pytest.approx(7.0)
    assert found.p99_ms == pytest.approx(507.0)


def test_a_hand_over_that_was_not_seen_gives_no_waits() -> None:
    found = judged([(number, 0, begun, ended) for number, _, begun, ended in faultless()])
    assert (found.p50_ms, found.p99_ms) == (None, None)


def test_a_record_below_the_committed_offset_that_was_never_finished_is_lost() -> None:
    found = judged(faultless()[:-1])
    assert faults(found) == {"lost": 1}
    assert not found.complete


def test_a_record_that_is_missing_above_the_committed_offset_is_not_lost_yet() -> None:
    last = CONTENTS.records - 1
    committed = {**ALL_COMMITTED, FILLED.partitions[last]: FILLED.offsets[last]}
    found = judge(journal(faultless()[:-1]), FILLED, committed)
    assert faults(found) == {}
    assert not found.complete


def test_a_finished_record_beyond_the_committed_offset_is_uncommitted() -> None:
    committed = {partition: end - 2 for partition, end in ALL_COMMITTED.items()}
    found = judge(journal(faultless()), FILLED, committed)
    assert faults(found) == {"uncommitted": 2 * CONTENTS.partitions}


def test_a_partition_without_a_committed_offset_is_uncommitted() -> None:
    found = judge(journal(faultless()), FILLED, {})
    assert faults(found) == {"uncommitted": CONTENTS.records}


def test_a_record_that_was_handled_again_is_repeated_and_not_out_of_order() -> None:
    number, fetched, begun, ended = faultless()[0]
    again = (number, fetched, begun + 900 * MS, ended + 900 * MS)
    assert faults(judged([*faultless(), again])) == {"repeated": 1}


def test_a_record_that_begins_after_a_later_one_of_its_key_is_out_of_order() -> None:
    entries = faultless()
    first, second = same_key()
    times = entries[first][1:], entries[second][1:]
    entries[first], entries[second] = (first, *times[1]), (second, *times[0])
    assert faults(judged(entries)) == {"out_of_order": 1}


def test_records_of_different_keys_have_no_order() -> None:
    entries = faultless()
    one, other = 0, next(n for n, key in enumerate(FILLED.keys) if key != FILLED.keys[0])
    assert other == one + 1
    times = entries[one][1:], entries[other][1:]
    entries[one], entries[other] = (one, *times[1]), (other, *times[0])
    assert faults(judged(entries)) == {}


def test_a_record_that_begins_while_one_of_its_key_runs_is_at_once() -> None:
    entries = faultless()
    first, second = same_key()
    number, fetched, begun, _ = entries[first]
    entries[first] = (number, fetched, begun, entries[second][2] + 1)
    assert faults(judged(entries)) == {"at_once": 1}


def test_the_order_is_that_of_the_begins_not_of_the_ends() -> None:
    entries = faultless()
    first, second = same_key()
    number, fetched, begun, _ = entries[first]
    entries[first] = (number, fetched, begun, entries[second][3] + 1)
    assert faults(judged(entries)) == {"at_once": 1}


def test_an_untimed_journal_tells_order_by_the_ends_and_nothing_of_time() -> None:
    first, second = same_key()
    numbers = list(range(CONTENTS.records))
    numbers[first], numbers[second] = second, first
    found = judge(journal([]).untimed(numbers), FILLED, ALL_COMMITTED)
    assert found.out_of_order == 1
    assert (found.at_once, found.seconds, found.p99_ms) == (None, None, None)


def test_a_run_without_a_record_is_judged_too() -> None:
    found = judge(journal([]), FILLED, {})
    assert (found.handled, found.seconds, faults(found)) == (0, None, {})


def test_the_same_contents_are_the_same_records() -> None:
    fill.cache_clear()
    assert fill(CONTENTS) == FILLED


def test_each_key_has_one_partition_and_offsets_count_up() -> None:
    held = fill(Contents(500, keys=20, partitions=4))
    of_key: dict[int, set[int]] = {}
    offsets: dict[int, list[int]] = {}
    for key, partition, offset in zip(held.keys, held.partitions, held.offsets, strict=True):
        of_key.setdefault(key, set()).add(partition)
        offsets.setdefault(partition, []).append(offset)
    assert {len(partitions) for partitions in of_key.values()} == {1}
    assert all(found == list(range(len(found))) for found in offsets.values())
    assert [len(offsets[p]) for p in range(4)] == held.log_ends


def test_zipf_makes_the_first_key_the_hottest_and_bounds_what_is_possible() -> None:
    even = Contents(2_000, keys=100, shortest_us=1_000, longest_us=1_000)
    skewed = fill(evolve(even, zipf=1.0))
    assert max(range(100), key=skewed.keys.count) == 0
    assert skewed.hottest_s == pytest.approx(skewed.keys.count(0) / 1000)
    assert skewed.shortest_s(slots=100) == skewed.hottest_s
    assert skewed.shortest_s(slots=2) == pytest.approx(1.0)
    assert fill(even).hottest_s < skewed.hottest_s / 5
