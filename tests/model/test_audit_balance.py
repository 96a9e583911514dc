"""What of many counts counts, and whether what came is what left."""

from __future__ import annotations

from typing import Any

import pytest

from window_consumer.audit.balance import BalanceVerdict, balance, effective
from window_consumer.audit.count import AuditCount, CountTier


class Counts(list[AuditCount]):
    """Makes counts as one process after another would."""

    def add(
        self, tier: CountTier, count: int, *offsets: tuple[int, int], **more: Any
    ) -> AuditCount:
        about: dict[str, Any] = {
            "client": "charge",
            "incarnation": str(more.get("epoch_ms", 1)),
            "sequence": len(self) + 1,
            "app": "shop",
            "instance": "host:1",
            "group": "shop-charge" if offsets else "",
            "topic": "orders",
            "partition": 0,
            "bucket_ms": 0,
            "length_ms": 60_000,
            "epoch_ms": 1,
        }
        made = AuditCount(tier=tier, count=count, offsets=tuple(offsets), **{**about, **more})
        self.append(made)
        return made


def test_a_count_that_was_sent_twice_counts_once() -> None:
    counts = Counts()
    counts.add(CountTier.FINISHED, 10, (0, 10))
    assert len(effective([*counts, *counts]).counts) == 1


def test_a_range_that_ran_again_replaces_its_earlier_count() -> None:
    counts = Counts()
    kept = counts.add(CountTier.FINISHED, 10, (0, 10), epoch_ms=1)
    gone = counts.add(CountTier.FINISHED, 5, (10, 15), epoch_ms=1)
    again = counts.add(CountTier.FINISHED, 4, (10, 14), epoch_ms=2)
    last = counts.add(CountTier.DEAD_LETTERED, 1, (14, 15), epoch_ms=2)
    for order in (counts, counts[::-1]):
        found = effective(order)
        assert set(found.counts) == {kept, again, last}
        assert found.replaced == (gone,)
        assert not found.open


def test_what_runs_again_and_is_not_finished_is_reported() -> None:
    counts = Counts()
    counts.add(CountTier.FINISHED, 10, (0, 10), epoch_ms=1)
    counts.add(CountTier.FINISHED, 4, (0, 4), epoch_ms=2)
    found = effective(counts)
    assert [count.count for count in found.counts] == [4]
    assert found.open == {("shop-charge", "orders", 0): ((4, 10),)}


def test_counts_that_were_made_together_do_not_replace_each_other() -> None:
    counts = Counts()
    counts.add(CountTier.FINISHED, 9, (0, 10))
    counts.add(CountTier.RETRIED, 1, (0, 10))
    assert len(effective(counts).counts) == 2


def test_a_topic_that_was_made_anew_replaces_nothing_of_the_old_one() -> None:
    counts = Counts()
    counts.add(CountTier.FINISHED, 10, (0, 10), epoch_ms=1, topic_hash=7)
    counts.add(CountTier.FINISHED, 3, (0, 3), epoch_ms=2, topic_hash=8)
    assert len(effective(counts).counts) == 2
    unsure = counts.add(CountTier.FINISHED, 2, (0, 2), epoch_ms=3)
    assert effective(counts).counts == (unsure,)


@pytest.mark.parametrize(
    ("left", "unknown", "verdict"),
    [
        (10, 0, BalanceVerdict.BALANCED),
        (9, 0, BalanceVerdict.IN_PROGRESS),
        (11, 0, BalanceVerdict.TOO_MANY),
        (11, 1, BalanceVerdict.WITHIN_UNKNOWN),
        (10, 1, BalanceVerdict.WITHIN_UNKNOWN),
        (12, 1, BalanceVerdict.TOO_MANY),
    ],
)
def test_a_balance_says_what_its_figures_mean(
    left: int, unknown: int, verdict: BalanceVerdict
) -> None:
    counts = Counts()
    counts.add(CountTier.PRODUCED, 8)
    counts.add(CountTier.REDRIVEN, 2)
    counts.add(CountTier.UNKNOWN, unknown)
    counts.add(CountTier.FINISHED, left - 1, (0, 10))
    counts.add(CountTier.EXPIRED, 1, (0, 10))
    (found,) = balance(counts)
    assert (found.came, found.left, found.unknown) == (10, left, unknown)
    assert found.verdict is verdict


def test_a_loss_and_a_duplicate_that_cancel_out_are_found_by_checksums() -> None:
    for checksums, verdict in (
        ((3, 12), BalanceVerdict.BALANCED),
        ((3, 13), BalanceVerdict.EXCHANGED),
    ):
        counts = Counts()
        counts.add(CountTier.PRODUCED, 2, id_xor=3, id_sum=12)
        counts.add(CountTier.FINISHED, 2, (0, 2), id_xor=checksums[0], id_sum=checksums[1])
        assert balance(counts)[0].verdict is verdict


def test_a_topic_whose_producers_do_not_report_is_not_said_to_lose() -> None:
    counts = Counts()
    counts.add(CountTier.FINISHED, 2, (0, 2))
    assert balance(counts)[0].verdict is BalanceVerdict.UNAUDITED


def test_each_group_and_bucket_balances_for_itself() -> None:
    counts = Counts()
    for bucket in (0, 60_000):
        counts.add(CountTier.PRODUCED, 2, bucket_ms=bucket)
        counts.add(CountTier.FINISHED, 2, (0, 2), bucket_ms=bucket)
    counts.add(CountTier.FINISHED, 1, (0, 1), bucket_ms=0, group="other")
    verdicts = {(each.group, each.bucket_ms): each.verdict for each in balance(counts)}
    assert verdicts == {
        ("shop-charge", 0): BalanceVerdict.BALANCED,
        ("shop-charge", 60_000): BalanceVerdict.BALANCED,
        ("other", 0): BalanceVerdict.IN_PROGRESS,
        ("other", 60_000): BalanceVerdict.IN_PROGRESS,
    }


def test_what_retention_took_explains_what_is_missing_until_it_was_noticed() -> None:
    minute = 60_000
    counts = Counts()
    for bucket_ms, done in ((0, 5), (minute, 2), (2 * minute, 8)):
        counts.add(CountTier.PRODUCED, 10, bucket_ms=bucket_ms)
        start = bucket_ms // 100
        counts.add(CountTier.FINISHED, done, (start, start + done), bucket_ms=bucket_ms)
    counts.add(CountTier.GONE, 6, (100, 106), bucket_ms=minute)
    found = {each.bucket_ms: (each.gone, each.verdict) for each in balance(counts)}
    assert found == {
        0: (6, BalanceVerdict.WITHIN_GONE),
        minute: (6, BalanceVerdict.IN_PROGRESS),  # 8 are missing
        2 * minute: (0, BalanceVerdict.IN_PROGRESS),  # it was noticed before
    }


def test_a_group_that_came_too_late_for_everything_is_reported() -> None:
    counts = Counts()
    counts.add(CountTier.PRODUCED, 10)
    counts.add(CountTier.GONE, 10, (0, 10))
    (found,) = balance(effective(counts).counts)
    assert (found.group, found.left, found.verdict) == (
        "shop-charge",
        0,
        BalanceVerdict.WITHIN_GONE,
    )


def test_what_is_noticed_to_be_gone_again_counts_once() -> None:
    counts = Counts()
    counts.add(CountTier.GONE, 10, (0, 10), epoch_ms=1)
    counts.add(CountTier.GONE, 10, (0, 10), epoch_ms=2)
    found = effective(counts)
    assert ([each.epoch_ms for each in found.counts], dict(found.open)) == ([2], {})
