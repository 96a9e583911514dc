"""Records whose headers nobody can read: each leaves in its turn, and is called nowhere."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest

from tests.engine.driver import Driven
from tests.engine.support import ORDERS, Note
from window_consumer.engine.retry.copy_record import CopyOrigin, Target, copy_of
from window_consumer.engine.retry.policy import RetryRules
from window_consumer.engine.scheduling.batching import BatchRules
from window_consumer.engine.scheduling.rate_limit import RateRules
from window_consumer.model.headers import LostHeaders, Reason
from window_consumer.model.protocols import Batch

BATCHES = {"batch": BatchRules(max_records=4, max_wait_s=0.0)}
WAYS = [
    pytest.param({"ordering": ordering, **more}, id=f"{ordering} {name}")
    for ordering in ("unordered", "key", "partition")
    for name, more in (("single", {}), ("batches", BATCHES))
]


def lost(offset: int, key: bytes | None = b"k") -> Any:
    return Note(offset, key, headers=LostHeaders.new())


def plain(offset: int, key: bytes | None = b"k") -> Any:
    return Note(offset, key)


def deliver(driven: Driven, messages: Iterable[Any]) -> None:
    batch = Batch.of(ORDERS, list(messages))
    batch.unreadable = [m.offset() for m in batch.messages if type(m.headers()) is LostHeaders]
    driven.engine.on_records(batch, driven.now, driven.wall_ms)


def run_all(driven: Driven) -> tuple[list[int], list[int]]:
    """Finish and ack everything; return the offsets that were called, and those that left."""
    called, left = [], []
    for _ in range(60):
        for failed in driven.published(0.5):
            assert failed.reason is Reason.DECODE
            assert failed.attempts == 0
            left.append(failed.message.offset())
            driven.copied(failed)
        for slice_ in list(driven.out):
            called += [each.offset() for each in slice_.messages]
            driven.finish(slice_)
    return called, left


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize(
    "offsets", [{0}, {3, 4}, {11}, set(range(12)), {0, 2, 4, 6, 8, 10}], ids=str
)
@pytest.mark.parametrize("keys", [1, 3], ids=["one key", "three keys"])
def test_they_leave_and_all_others_are_called_in_order(
    way: dict[str, Any], offsets: set[int], keys: int
) -> None:
    driven = Driven(**way, retry=RetryRules(on_failure="block"))
    deliver(
        driven, [(lost if at in offsets else plain)(at, b"%d" % (at % keys)) for at in range(12)]
    )
    called, left = run_all(driven)
    assert sorted(left) == sorted(offsets)
    assert sorted(called) == [at for at in range(12) if at not in offsets]
    for key in range(keys if way["ordering"] != "unordered" else 0):
        mine = [at for at in called if at % keys == key]
        assert mine == sorted(mine)
    assert driven.committable == 12
    assert not driven.engine.partitions[ORDERS].unreadable
    assert driven.engine.partitions[ORDERS].bytes == 0


@pytest.mark.parametrize("way", WAYS)
def test_a_lane_waits_until_the_copy_is_acked(way: dict[str, Any]) -> None:
    driven = Driven(**way)
    deliver(driven, [lost(0), plain(1)])
    failed = driven.published_one(0.5)
    ordered = way["ordering"] != "unordered"
    assert driven.running_offsets == ([] if ordered else [1])
    driven.copied(failed)
    driven.tick(0.5)
    assert driven.running_offsets == [1]


def test_a_rate_is_charged_for_calls_alone() -> None:
    driven = Driven(rate=RateRules(per_s=1.0, burst=2, per="worker"))
    deliver(driven, [plain(0), lost(1), plain(2), plain(3)])
    called, left = run_all(driven)
    assert (called, left) == ([0, 2, 3], [1])


def test_one_that_is_delivered_again_leaves_once() -> None:
    driven = Driven()
    deliver(driven, [plain(0), lost(1)])
    deliver(driven, [plain(0), lost(1), plain(2)])
    called, left = run_all(driven)
    assert (called, left) == ([0, 2], [1])


@pytest.mark.parametrize("end", ["dead_letter", "drop", "stop"])
def test_when_spent_says_what_becomes_of_them(end: Any) -> None:
    driven = Driven(retry=RetryRules(when_spent=end))
    deliver(driven, [lost(0), plain(1)])
    decisions = driven.tick(0.5)
    assert bool(decisions.publish) == (end == "dead_letter")
    assert (decisions.stop is not None) == (end == "stop")
    if end == "stop":
        assert decisions.stop is not None
        assert "orders[0]@0" in str(decisions.stop)
    driven.finish_all()
    assert driven.committable == (2 if end == "drop" else 0)


def test_the_copy_says_that_headers_are_lost_and_keeps_the_rest() -> None:
    driven = Driven()
    deliver(driven, [Note(7, b"\xff", headers=LostHeaders.new(), value=b"\x00\xfe")])
    failed = driven.published_one(0.5)
    copy = copy_of(failed, CopyOrigin("shop", "charge"), Target("dlq", 1, 1), 0.0)
    headers = dict(copy.headers)
    assert (copy.key, copy.value) == (b"\xff", b"\x00\xfe")
    assert headers["wc-headers-lost"] == b"1"
    assert headers["wc-reason"] == b"DECODE"
    assert headers["wc-attempts"] == b"0"
    assert [headers[f"wc-orig-{part}"] for part in ("topic", "partition", "offset")] == [
        b"orders",
        b"0",
        b"7",
    ]


def test_a_copy_that_is_put_back_and_fails_again_still_says_so() -> None:
    driven = Driven(retry=RetryRules(attempts=1))
    driven.deliver(Note(7, b"k", headers=[("wc-headers-lost", b"1"), ("wc-level", b"1m")]))
    driven.tick()
    driven.fail(driven.out[0], 7)
    failed = driven.published_one(5.0)
    copy = copy_of(failed, CopyOrigin("shop", "charge"), Target("dlq", 1, 1), 0.0)
    assert dict(copy.headers)["wc-headers-lost"] == b"1"
    assert "wc-level" not in dict(copy.headers)
