"""Records of short slices are gathered, and counted as if each had been counted at once."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from functools import reduce
from operator import xor
from random import Random
from typing import Any

import pytest

from tests.engine.driver import Driven
from tests.engine.support import Note
from window_consumer.audit.consumer import AuditRules, ConsumerAudit
from window_consumer.audit.count import CountTier, latency_bucket, signed64
from window_consumer.audit.pending import PendingCounts
from window_consumer.audit.sums import MOST_BYTES, MOST_RECORDS, Columns, Gathered, id_hash
from window_consumer.engine.scheduling.slices import Slice
from window_consumer.model.errors import Skip

START_MS = 1_700_000_000_000
MINUTE_MS = 60_000
COMMIT_S = 0.6


class Counting:
    """An Engine whose records are counted, each in a slice of its own."""

    def __init__(
        self,
        slots: int = 1,
        most_gathered: int = MOST_RECORDS,
        make_pending: type[PendingCounts] = PendingCounts,
    ):
        self.rows: list[Mapping[str, Any]] = []
        self.driven = Driven(slots=slots, window_cells=64, cell_records=100, batch_records=1)
        rules = AuditRules(ids=True, most_gathered=most_gathered)
        self.audit = ConsumerAudit("shop", rules, self.rows.extend, self.wall_ms, make_pending)
        self.driven.engine.observe(self.audit)
        # The audit has not seen the assignment that was there before it.
        (self.partition,) = self.driven.engine.partitions.values()
        self.audit.assigned(self.partition, self.driven.now)

    def wall_ms(self) -> float:
        return START_MS + (self.driven.now - 1000.0) * 1000

    def tick(self, seconds: float = 0.0) -> bool:
        """Let time pass; the broker takes every commit at once. Return whether there is one."""
        driven = self.driven
        decisions = driven.tick(seconds)
        driven.engine.on_committed({each.name: None for each in decisions.commit}, driven.now)
        return bool(decisions.commit)

    def run(self, skipping: int = 0) -> dict[int, int]:
        """Let all calls return, and return when each record was reported."""
        finished_ms = {}
        self.tick(0.001)
        while self.driven.out:
            for slice_ in list(self.driven.out):
                (message,) = slice_.messages
                skipped = bool(skipping) and message.offset() % skipping == 0
                finished_ms[message.offset()] = self.over(slice_, skipped=skipped)
            self.tick(0.001)
        self.tick(COMMIT_S)
        return finished_ms

    def over(self, slice_: Slice, *, skipped: bool = False) -> int:
        """Let a slice's call return at once, and return when that was reported."""
        if skipped:
            for message in slice_.messages:
                slice_.deviate().skip(message, Skip())
        self.driven.finish(slice_)
        return int(self.wall_ms())

    @property
    def gathered(self) -> Gathered:
        return self.audit._tenures[self.partition].gathered


def sums_of(
    rows: Sequence[Mapping[str, Any]], tier: CountTier = CountTier.FINISHED
) -> dict[str, Any]:
    """Return the sums of all counts of a tier."""
    mine = [row for row in rows if row["tier"] is tier]
    latency: Counter[int] = Counter()
    for row in mine:
        latency.update(row["latency"])
    return {
        "count": sum(row["count"] for row in mine),
        "bytes": sum(row["bytes"] for row in mine),
        "id_xor": reduce(xor, [row["id_xor"] for row in mine], 0),
        "latency": dict(latency),
    }


@pytest.mark.parametrize("span_ms", [MINUTE_MS // 4, 2 * MINUTE_MS], ids=["one", "several"])
def test_each_record_is_counted_with_its_own_latency_in_its_bucket(span_ms: int) -> None:
    counting, rng = Counting(), Random(7)
    sent = [
        Note(offset, size=offset % 7, written_ms=START_MS - rng.randrange(span_ms))
        for offset in range(MOST_RECORDS + 40)
    ]
    counting.driven.deliver(*sent)
    finished_ms = counting.run()
    ages = [finished_ms[each.offset()] - each.timestamp()[1] for each in sent]
    assert sums_of(counting.rows) == {
        "count": len(sent),
        "bytes": sum(map(len, sent)),
        "id_xor": signed64(
            reduce(xor, [id_hash(b"orders/0/%d" % each.offset()) for each in sent], 0)
        ),
        "latency": dict(Counter(map(latency_bucket, ages))),
    }
    buckets = {each.timestamp()[1] // MINUTE_MS * MINUTE_MS for each in sent}
    assert {row["bucket_ms"] for row in counting.rows} == buckets
    assert (len(buckets) == 1) is (span_ms < MINUTE_MS)


def test_what_a_commit_covers_is_written_with_it_however_little_was_gathered() -> None:
    counting = Counting()
    counting.driven.deliver(Note(0))
    counting.tick()
    (slice_,) = counting.driven.out
    counting.over(slice_)
    assert not counting.rows
    assert counting.tick(COMMIT_S)
    assert sums_of(counting.rows)["count"] == 1
    assert not counting.gathered.messages


def test_records_that_were_skipped_are_not_counted_with_those_that_were_not() -> None:
    counting = Counting()
    counting.driven.deliver(*map(Note, range(6)))
    counting.run(skipping=3)
    assert sums_of(counting.rows)["count"] == 4
    assert sums_of(counting.rows, CountTier.FILTERED)["count"] == 2


def test_what_was_gathered_of_a_partition_that_goes_without_a_commit_is_forgotten() -> None:
    counting = Counting()
    counting.driven.deliver(Note(0))
    counting.tick()
    (slice_,) = counting.driven.out
    counting.over(slice_)
    counting.driven.engine.on_lost([counting.partition.name], counting.driven.now)
    assert not counting.rows
    assert not counting.audit._tenures


def test_clocks_that_turn_out_to_differ_say_nothing_of_what_was_gathered_before() -> None:
    counting = Counting(slots=2)
    driven = counting.driven
    driven.deliver(*map(Note, range(2)))
    counting.tick()
    first, second = driven.out
    counting.over(first)
    counting.audit._tenures[counting.partition].skew.is_skewed = True
    counting.over(second)
    counting.tick(COMMIT_S)
    assert [(row["count"], row["skewed"], row["latency"]) for row in counting.rows] == [
        (2, 1, {0: 1})
    ]


def test_no_more_is_kept_than_so_many_records_and_bytes() -> None:
    gathered = Gathered()
    assert not any(gathered.take((Note(each),), 1.0) for each in range(MOST_RECORDS - 1))
    assert gathered.take((Note(0),), 1.0)
    gathered.all()
    assert not gathered.take((Note(0, size=MOST_BYTES // 2),), 1.0)
    assert gathered.take((Note(1, size=MOST_BYTES // 2 - 1), Note(2, size=1)), 1.0)
    gathered.all()
    assert not gathered.take((Note(0),), 1.0)


class RecordedCounts(PendingCounts):
    """Keeps how many records were added at a time."""

    def __init__(self, finished: Iterable[range], length_ms: int):
        super().__init__(finished, length_ms)
        self.added: list[int] = []

    def add(
        self, tier: CountTier, offsets: Sequence[int], columns: Columns, next_offset: int
    ) -> None:
        self.added.append(len(offsets))
        super().add(tier, offsets, columns, next_offset)


def test_what_is_done_once_is_not_done_for_each_slice() -> None:
    counting = Counting(slots=4, most_gathered=8, make_pending=RecordedCounts)
    pending = counting.audit._tenures[counting.partition].pending
    assert isinstance(pending, RecordedCounts)
    counting.driven.deliver(*map(Note, range(20)))
    counting.run()
    assert max(pending.added) == 8
    assert sum(pending.added) == 20
    assert (
        len(pending.added) <= 4
    )  # one more than there are full ones: the first commit is made at once


def test_what_was_gone_is_counted_by_its_offsets_when_it_is_noticed() -> None:
    counting = Counting()
    driven = counting.driven
    driven.engine.on_gone(counting.partition.name, range(5, 15), driven.now)
    (row,) = counting.rows
    assert (row["tier"], row["count"], row["offsets"]) == (CountTier.GONE, 10, ((5, 15),))
    assert row["bucket_ms"] <= counting.wall_ms() < row["bucket_ms"] + MINUTE_MS
    assert driven.engine.counters.gone == 10
