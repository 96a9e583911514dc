"""Which copies in the ladder follow a dead head, by what was written when."""

from __future__ import annotations

import pytest

from window_consumer.model.record import TopicPartition
from window_consumer.parking.dead_head import DeadHeads
from window_consumer.parking.scans import LadderCopy

HOME, ELSEWHERE = TopicPartition("orders", 0), TopicPartition("orders", 1)


def dead(
    offset: int,
    written: float,
    reason: bytes = b"FATAL",
    lane: bytes | None = b"k",
    home: TopicPartition = HOME,
) -> DeadHeads:
    heads = DeadHeads()
    headers = {
        "wc-orig-topic": home.topic.encode(),
        "wc-orig-partition": b"%d" % home.partition,
        "wc-orig-offset": b"%d" % offset,
        "wc-reason": reason,
    }
    heads.add(lane, headers, written)
    return heads


@pytest.mark.parametrize(
    ("heads", "follows"),
    [
        (dead(3, 101.0), 3),
        (dead(3, 100.0), 3),
        (dead(3, 99.0), None),
        (dead(7, 101.0), None),
        (dead(8, 101.0), None),
        (dead(3, 101.0, b"EXPIRED"), None),
        (dead(3, 101.0, b"FOLLOWS"), None),
        (dead(3, 101.0, lane=b"other"), None),
        (dead(3, 101.0, lane=None), None),
        (dead(3, 101.0, home=ELSEWHERE), None),
    ],
    ids=(
        "it died later",
        "it died at that moment",
        "it was dead before",
        "the same record",
        "a later record",
        "it was too late",
        "it followed another one",
        "another key",
        "no key",
        "another partition",
    ),
)
def test_a_copy_follows_what_died_behind_its_back(heads: DeadHeads, follows: int | None) -> None:
    (copy,) = heads.marked(HOME, [LadderCopy(0, b"k", 7, written=100.0)])
    assert copy == LadderCopy(0, b"k", 7, 100.0, follows)


def test_a_follower_of_a_follower_follows_the_first_one() -> None:
    heads = dead(3, 101.0)
    heads.add(b"k", {"wc-orig-topic": b"orders", "wc-orig-partition": b"0"}, 102.0)
    later = {"wc-orig-topic": b"orders", "wc-orig-partition": b"0", "wc-orig-offset": b"4"}
    heads.add(b"k", {**later, "wc-reason": b"FOLLOWS"}, 102.0)
    (copy,) = heads.marked(HOME, [LadderCopy(0, b"k", 7, written=100.0)])
    assert copy.follows == 3
