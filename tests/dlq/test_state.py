from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.dlq.memory import STATE, Stored
from window_consumer.dlq.dead_letter import Position
from window_consumer.dlq.redrive_state import Resolution, read_resolved

DEAD = "shop.orders.dlq"
DONE = Resolution("redriven", 1_700_000_000_000, "shop.redrive.1", "shop.orders.retry.now", "id-1")


def record(key: bytes | None, value: bytes | None) -> Stored:
    return Stored((STATE, 0, 0), key, value)


def test_what_is_written_is_read_back() -> None:
    copies = DONE.records(STATE, [Position(DEAD, 3, 42), Position(DEAD, 3, 43)])
    assert [copy.key for copy in copies] == [b"shop.orders.dlq/3/42-43"]
    resolved = read_resolved([record(copy.key, copy.value) for copy in copies], DEAD, "id-1")
    assert len(resolved) == 2
    assert resolved.of(Position(DEAD, 3, 42)) == DONE
    assert Stored((DEAD, 3, 43)) in resolved
    assert Position(DEAD, 3, 44) not in resolved
    assert Position(DEAD, 2, 42) not in resolved


def test_a_run_of_dead_letters_is_one_record_and_ends_at_a_gap_and_at_a_partition() -> None:
    offsets = [(1, 7), (0, 8), (1, 5), (0, 9), (1, 8), (0, 7), (2, 10)]
    copies = DONE.records(STATE, [Position(DEAD, *each) for each in offsets])
    assert [copy.key for copy in copies] == [
        b"shop.orders.dlq/0/7-9",
        b"shop.orders.dlq/1/5",
        b"shop.orders.dlq/1/7-8",
        b"shop.orders.dlq/2/10",
    ]
    assert DONE.records(STATE, []) == []


runs = st.tuples(st.integers(0, 20), st.integers(0, 8)).map(lambda it: (it[0], it[0] + it[1]))


@given(st.lists(st.tuples(runs, st.booleans()), max_size=12))
def test_the_last_word_on_an_offset_counts(said: list[tuple[tuple[int, int], bool]]) -> None:
    log, by_key = [], dict[tuple[int, int], int | None]()
    for at_ms, ((first, last), opened_again) in enumerate(said):
        done = Resolution("redriven", at_ms, "shop.redrive.1", "orders", "id-1")
        key = DONE.records(STATE, [Position(DEAD, 0, each) for each in range(first, last + 1)])[0]
        log.append(record(key.key, None if opened_again else done.as_bytes()))
        by_key[first, last] = None if opened_again else at_ms
    expected = {
        offset: at_ms
        for (first, last), at_ms in sorted(by_key.items(), key=lambda each: each[1] or 0)
        if at_ms is not None
        for offset in range(first, last + 1)
    }
    resolved = read_resolved(log, DEAD, "id-1")
    found = {offset: resolved.of(Position(DEAD, 0, offset)) for offset in range(-1, 40)}
    assert {offset: done.at_ms for offset, done in found.items() if done} == expected
    assert len(resolved) == len(expected)


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
        (b"shop.orders.dlq/0/2-1", DONE.as_bytes()),
        (b"shop.orders.dlq/0/1-", DONE.as_bytes()),
        (b"shop.orders.dlq/0/1", b"no JSON"),
        (b"shop.orders.dlq/0/1", b"[]"),
        (b"shop.orders.dlq/0/1", b"{}"),
        (b"shop.orders.dlq/0/1", b'{"what":1,"at":"x","by":"","to":"","topic_id":"id-1"}'),
    ],
)
def test_what_cannot_be_read_leaves_a_dead_letter_open(key: bytes | None, value: bytes) -> None:
    assert not read_resolved([record(key, value)], DEAD, "id-1")
