"""Trace events travel as columns and come out as they went in."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from window_consumer.model.key_forms import as_text, key_form
from window_consumer.trace.event import FIELDS, TraceEvent
from window_consumer.trace.event_batch import (
    AnyColumn,
    Column,
    KeyColumn,
    OffsetColumn,
    UnreadableBatchError,
    decoded,
    encoded,
)

CONSTANTS = {"role": "consumer", "step": "received", "topic": "orders", "partition": 3}

texts = st.text(st.characters(codec="utf-8"), max_size=20)
keys = st.none() | st.binary(max_size=10) | st.sampled_from([b'"', b"hmac:x", b"base64:", b"a\\b"])


def one_by_one(values: list[object]) -> Column:
    column = Column()
    for value in values:
        column.add(value, 1)
    return column


@given(
    st.lists(
        st.tuples(
            st.integers(0, 2**63 - 1),
            st.integers(0, 2**53),
            st.none() | st.integers(0, 9),
            st.none() | texts,
            keys,
        ),
        min_size=1,
    )
)
def test_what_goes_in_comes_out(rows: list[tuple[int, int, int | None, str | None, bytes]]) -> None:
    offsets, times, durations, tags, given_keys = map(list, zip(*rows, strict=True))
    places = OffsetColumn()
    places.add(offsets)
    columns: dict[str, AnyColumn] = {
        "offset": places,
        "time_us": one_by_one(times),
        "duration_us": one_by_one(durations),
        "tags": one_by_one(tags),
        "key": KeyColumn.of(given_keys, as_text),
    }
    data = encoded("w", 7, len(rows), CONSTANTS, columns)
    events = list(decoded(data))
    assert [each.offset for each in events] == offsets
    assert [each.time_us for each in events] == times
    assert [each.duration_us for each in events] == durations
    assert [each.tags for each in events] == tags
    assert [each.key for each in events] == list(map(as_text, given_keys))
    assert [each.event_id for each in events] == [f"w-7-{index}" for index in range(len(rows))]
    assert {each.partition for each in events} == {3}


@given(st.lists(st.tuples(st.integers(0, 50), st.integers(1, 5)), min_size=1))
def test_offsets_that_follow_each_other_are_runs(runs: list[tuple[int, int]]) -> None:
    places, expected = OffsetColumn(), list[int]()
    for first, count in runs:
        places.add(list(range(first, first + count)))
        expected += range(first, first + count)
    data = encoded("w", 0, len(expected), CONSTANTS | {"time_us": 1}, {"offset": places})
    assert [each.offset for each in decoded(data)] == expected


def test_offsets_of_one_slice_may_come_in_any_order() -> None:
    places = OffsetColumn()
    places.add([7, 9, 8, 10])
    data = encoded("w", 0, 4, CONSTANTS | {"time_us": 1}, {"offset": places})
    assert [each.offset for each in decoded(data)] == [7, 9, 8, 10]


def test_records_in_order_cost_a_few_bytes() -> None:
    places, times = OffsetColumn(), Column()
    places.add(list(range(1000, 6000)))
    times.add(1_700_000_000_000_000, 5000)
    columns: dict[str, AnyColumn] = {"offset": places, "time_us": times}
    assert len(encoded("w", 0, 5000, CONSTANTS, columns)) < 300


def test_ids_follow_from_the_place_where_they_are_missing() -> None:
    data = encoded("w", 0, 1, CONSTANTS | {"time_us": 1, "offset": 17}, {})
    (event,) = decoded(data)
    assert (event.record_id, event.root_id) == ("orders/3/17", "orders/3/17")
    assert (event.orig_topic, event.orig_partition, event.orig_offset) == ("orders", 3, 17)


def test_ids_of_copies_follow_from_where_they_come_from() -> None:
    origin = {"orig_topic": "orders", "orig_partition": 1, "orig_offset": 5}
    given = CONSTANTS | {"topic": "g.orders.retry.1s", "time_us": 1, "offset": 0}
    (event,) = decoded(encoded("w", 0, 1, given | origin, {}))
    assert event.record_id == "orders/1/5"


def test_what_was_never_sent_has_no_place_to_be_named_after() -> None:
    (event,) = decoded(encoded("w", 0, 1, {**CONSTANTS, "partition": None, "time_us": 1}, {}))
    assert (event.record_id, event.offset, event.orig_offset) == (None, None, None)


def test_coded_keys_are_not_read_back() -> None:
    column = KeyColumn.of([b"anna", None], key_form("hmac", b"secret" * 3))
    assert b"anna" not in column.text().encode()
    assert json.loads(column.text())["v"][1] is None


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"\xff\xfe",
        b"[]",
        b'{"format":2}',
        b'{"format":1}',
        b'{"format":1,"writer":"w","sequence":0,"count":2,"all":{},"columns":{}}',
        b'{"format":1,"writer":"w","sequence":0,"count":2,"all":{},"columns":{"time_us":{"v":[1]}}}',
    ],
)
def test_what_is_no_batch_is_reported(data: bytes) -> None:
    with pytest.raises(UnreadableBatchError):
        list(decoded(data))


def test_a_later_format_is_reported_as_such() -> None:
    with pytest.raises(UnreadableBatchError, match="format 2"):
        list(decoded(b'{"format":2}'))


def test_fields_that_later_versions_add_are_left_out() -> None:
    given = CONSTANTS | {"time_us": 1, "mood": "good"}
    assert list(decoded(encoded("w", 0, 1, given, {})))


def test_the_fields_are_those_of_the_wire_contract() -> None:
    wire = """event_id record_id root_id trace_id span_id role step key tags time_us duration_us
        status attempt cluster topic partition offset orig_topic orig_partition orig_offset group
        client_id host handler error_class error_fingerprint dropped sample"""
    assert set(wire.split()) <= {field.name for field in FIELDS}
    kinds = {field.name: field.kind for field in FIELDS}
    assert (kinds["offset"], kinds["sample"], kinds["key"]) == (int, float, str)
    assert all(field.meaning for field in FIELDS)
    assert TraceEvent.__attrs_attrs__  # the one source of the above
