from __future__ import annotations

import json

import pytest

from tests.messaging.memory import STATE, Stored
from window_consumer.messaging.state import Resolution, read_resolved, state_topic
from window_consumer.model.dead_letter import Position

DEAD = "shop.orders.dlq"
DONE = Resolution("redriven", 1_700_000_000_000, "shop.redrive.1", "shop.orders.retry.now", "id-1")


def record(key: bytes | None, value: bytes | None) -> Stored:
    return Stored((STATE, 0, 0), key, value)


def test_the_topic_belongs_to_the_group() -> None:
    assert state_topic("shop") == "shop.dlq.state"


def test_what_is_written_is_read_back() -> None:
    copies = DONE.records(STATE, [Position(DEAD, 3, 42), Position(DEAD, 3, 43)])
    assert [copy.key for copy in copies] == [b"shop.orders.dlq/3/42", b"shop.orders.dlq/3/43"]
    resolved = read_resolved([record(copy.key, copy.value) for copy in copies], DEAD, "id-1")
    assert len(resolved) == 2
    assert resolved.of(Position(DEAD, 3, 42)) == DONE
    assert Stored((DEAD, 3, 43)) in resolved
    assert Position(DEAD, 3, 44) not in resolved
    assert Position(DEAD, 2, 42) not in resolved


def test_a_value_is_json_with_what_when_and_by_whom() -> None:
    assert json.loads(DONE.as_bytes()) == {
        "what": "redriven",
        "at": 1_700_000_000_000,
        "by": "shop.redrive.1",
        "to": "shop.orders.retry.now",
        "topic_id": "id-1",
    }


def test_other_dead_letter_topics_of_the_group_are_not_meant() -> None:
    others = [b"shop.orders.dlq2/0/1", b"shop.paid.dlq/0/1", b"x.shop.orders.dlq/0/1"]
    assert not read_resolved([record(key, DONE.as_bytes()) for key in others], DEAD, "id-1")


@pytest.mark.parametrize("topic_id", ["id-2", None])
def test_what_was_said_of_an_earlier_topic_of_the_name_does_not_count(topic_id: str | None) -> None:
    said = [record(b"shop.orders.dlq/0/1", DONE.as_bytes())]
    assert not read_resolved(said, DEAD, topic_id)


def test_a_later_record_counts_and_one_without_a_value_opens_a_dead_letter_again() -> None:
    later = Resolution("redriven", 2, "shop.redrive.2", "orders", "id-1")
    key = b"shop.orders.dlq/0/1"
    said = [record(key, DONE.as_bytes()), record(key, later.as_bytes())]
    assert read_resolved(said, DEAD, "id-1").of(Position(DEAD, 0, 1)) == later
    assert not read_resolved([*said, record(key, None)], DEAD, "id-1")


@pytest.mark.parametrize(
    ("key", "value"),
    [
        (None, DONE.as_bytes()),
        (b"shop.orders.dlq/0", DONE.as_bytes()),
        (b"shop.orders.dlq/0/x", DONE.as_bytes()),
        (b"shop.orders.dlq/0/1", b"no JSON"),
        (b"shop.orders.dlq/0/1", b"[]"),
        (b"shop.orders.dlq/0/1", b"{}"),
        (b"shop.orders.dlq/0/1", b'{"what":1,"at":"x","by":"","to":"","topic_id":"id-1"}'),
    ],
)
def test_what_cannot_be_read_leaves_a_dead_letter_open(key: bytes | None, value: bytes) -> None:
    assert not read_resolved([record(key, value)], DEAD, "id-1")
