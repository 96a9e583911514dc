from __future__ import annotations

from collections import Counter
from hashlib import sha256

import pytest
from attrs import evolve

from tests.dlq.memory import ENTRY, RULES, STATE, Cluster, KilledError, Stored, letter
from window_consumer.dlq.dead_letter import Position
from window_consumer.dlq.redrive_state import read_resolved
from window_consumer.testing.clock import ManualClock

COUNT = 10
STEPS = 60
"""More than a run over so many dead letters has."""


def test_all_dead_letters_go_back_in_their_order() -> None:
    cluster = Cluster([letter(offset) for offset in range(COUNT)])
    counts = cluster.redrive()
    assert (counts.read, counts.redriven) == (COUNT, COUNT)
    assert [copy.value for copy in cluster.entered()] == [b"value %d" % n for n in range(COUNT)]


def test_a_second_run_goes_on_where_the_first_was() -> None:
    cluster = Cluster([letter(offset) for offset in range(COUNT)])
    cluster.redrive()
    cluster.letters.append(letter(COUNT))
    counts = cluster.redrive()
    assert (counts.read, counts.redriven) == (1, 1)


def test_a_stop_ends_between_two_batches_and_what_is_done_stays_done() -> None:
    cluster = Cluster([letter(offset) for offset in range(COUNT)])
    asked = iter([False, True])
    cluster.redrive(stop_asked=lambda: next(asked))
    assert cluster.progress == len(cluster.entered()) == RULES.batch_records


@pytest.mark.parametrize("killed_at", range(1, STEPS))
def test_nothing_is_lost_and_at_most_a_batch_repeats_wherever_a_run_is_killed(
    killed_at: int,
) -> None:
    cluster = Cluster([letter(offset) for offset in range(COUNT)], killed_at=killed_at)
    try:
        cluster.redrive()
    except KilledError:
        acked = {copy.key for copy in cluster.entered()}
        for record in cluster.remembered():
            assert record.key() is not None
            first, _, last = record.key().rpartition(b"/")[2].partition(b"-")  # type: ignore[union-attr] # see above
            for offset in range(int(first), int(last or first) + 1):
                assert b"key %d" % offset in acked, "remembered as resolved before it was written"
        for each in cluster.letters[: cluster.progress]:
            assert each.key() in acked, "passed over before it was written"
        cluster.redrive()
    times = Counter(copy.key for copy in cluster.entered())
    assert set(times) == {each.key() for each in cluster.letters}
    assert sum(times.values()) - COUNT <= RULES.batch_records


def test_a_run_has_fewer_steps_than_are_killed_at() -> None:
    cluster = Cluster([letter(offset) for offset in range(COUNT)])
    cluster.redrive()
    assert COUNT < cluster.steps < STEPS


def test_what_was_remembered_before_a_kill_does_not_go_back_again() -> None:
    cluster = Cluster([letter(offset) for offset in range(COUNT)])
    cluster.redrive()
    cluster.progress = 0
    counts = cluster.redrive()
    assert (counts.redriven, counts.resolved_before) == (0, COUNT)


def test_a_record_that_was_put_back_too_often_is_left_and_counted() -> None:
    cluster = Cluster([letter(n, ("wc-redrives", b"%d" % n)) for n in range(6)])
    counts = cluster.redrive()
    assert (counts.redriven, counts.guarded) == (3, 3)
    assert [copy.key for copy in cluster.entered()] == [b"key 0", b"key 1", b"key 2"]
    assert [each.key() for each in cluster.remembered()] == [b"shop.orders.dlq/1/0-2"]


def test_redrives_that_cannot_be_read_count_as_none() -> None:
    cluster = Cluster([letter(0, ("wc-redrives", b"many"))])
    assert cluster.redrive().redriven == 1


def test_a_condition_leaves_the_others() -> None:
    cluster = Cluster([letter(offset) for offset in range(COUNT)])
    counts = cluster.redrive(evolve(RULES, matches=lambda each: each.offset() % 5 == 0))
    assert (counts.redriven, counts.not_matching) == (2, 8)
    assert {copy.key for copy in cluster.entered()} == {b"key 0", b"key 5"}


def test_a_dry_run_counts_and_changes_nothing() -> None:
    cluster = Cluster([letter(n, ("wc-redrives", b"%d" % n)) for n in range(COUNT)])
    counts = cluster.redrive(dry=True)
    assert (counts.read, counts.redriven, counts.guarded) == (COUNT, 3, 7)
    assert not cluster.written
    assert cluster.progress == 0


def test_a_rate_is_kept() -> None:
    cluster = Cluster([letter(offset) for offset in range(30)])
    clock = ManualClock()
    cluster.redrive(evolve(RULES, rate=10.0, batch_records=1_000), clock=clock)
    assert clock.now() == pytest.approx(3.0)


def test_a_value_that_is_only_referred_to_goes_back_whole() -> None:
    value = b"x" * 1000
    reference = f"orders/1/7 sha256:{sha256(value).hexdigest()}".encode()
    cluster = Cluster([letter(7, ("wc-value-ref", reference), value=b"")])
    cluster.source["orders", 1, 7] = Stored(("orders", 1, 7), b"key 7", value)
    assert cluster.redrive().redriven == 1
    (copy,) = cluster.entered()
    assert copy.value == value
    assert "wc-value-ref" not in dict(copy.headers)


@pytest.mark.parametrize(
    ("reference", "found", "why"),
    [
        (b"orders/1/7 sha256:ab", None, "orders/1/7 is no longer in the log"),
        (b"orders/1/7 sha256:ab", b"another", "SHA-256 differs"),
        (b"nonsense", b"another", "cannot be read"),
    ],
)
def test_a_value_that_is_gone_is_said_and_its_record_left(
    reference: bytes, found: bytes | None, why: str
) -> None:
    cluster = Cluster([letter(7, ("wc-value-ref", reference), value=b""), letter(8)])
    if found is not None:
        cluster.source["orders", 1, 7] = Stored(("orders", 1, 7), b"key 7", found)
    counts = cluster.redrive()
    assert (counts.redriven, counts.unavailable) == (1, 1)
    (reason,) = counts.reasons
    assert "shop.orders.dlq/1/7" in reason
    assert why in reason
    assert [copy.key for copy in cluster.entered()] == [b"key 8"]
    resolved = read_resolved(cluster.remembered(), "shop.orders.dlq", RULES.topic_id)
    assert Position("shop.orders.dlq", 1, 7) not in resolved
    assert Position("shop.orders.dlq", 1, 8) in resolved


def test_a_copy_that_is_too_large_is_left_and_the_others_go() -> None:
    cluster = Cluster([letter(offset) for offset in range(3)], too_large={b"value 1"})
    counts = cluster.redrive()
    assert (counts.redriven, counts.refused) == (2, 1)
    assert [copy.key for copy in cluster.entered()] == [b"key 0", b"key 2"]
    assert len(cluster.remembered()) == 2


def test_the_memory_says_what_was_done_when_and_by_whom() -> None:
    cluster = Cluster([letter(5)])
    cluster.redrive(clock=ManualClock(wall_ms=1_234))
    resolved = read_resolved(cluster.remembered(), "shop.orders.dlq", RULES.topic_id)
    done = resolved.of(Position("shop.orders.dlq", 1, 5))
    assert done is not None
    assert (done.what, done.at_ms, done.by, done.to) == ("redriven", 1_234, RULES.by, ENTRY)
    assert {copy.topic for copy in cluster.written} == {ENTRY, STATE}
