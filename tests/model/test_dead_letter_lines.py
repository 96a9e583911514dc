from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.engine.test_copies import a_failed, copied
from tests.golden_texts import Golden
from tests.model.test_dead_letter import FOREIGN, Headers, read
from window_consumer.dlq.dead_letter import read_dead_letter
from window_consumer.dlq.files import line_of, read_line
from window_consumer.dlq.stored_record import StoredMessage
from window_consumer.model.record import TopicPartition

BYTES = st.none() | st.binary(max_size=20) | st.text(max_size=20).map(str.encode)


@given(
    key=BYTES,
    value=BYTES,
    headers=st.lists(st.tuples(st.text(max_size=5), BYTES), max_size=4),
    timestamp=st.sampled_from([None, 0, 1_700_000_000_000]),
)
def test_what_was_written_is_read_back_byte_for_byte(
    key: bytes | None, value: bytes | None, headers: Headers, timestamp: int | None
) -> None:
    letter = read_dead_letter(
        StoredMessage(
            name=TopicPartition("dead", 3),
            at=7,
            key_bytes=key,
            value_bytes=value,
            header_pairs=headers,
            timestamp_ms=timestamp,
        )
    )
    assert letter.timestamp == timestamp
    line = line_of(letter)
    assert "\n" not in line
    assert read_line(line) == letter


@pytest.mark.parametrize("headers", [copied(a_failed()).headers, *FOREIGN.values()])
def test_whoever_wrote_it_a_dead_letter_survives_the_way(headers: Headers) -> None:
    letter = read(list(headers))
    assert read_line(line_of(letter)) == letter


def test_a_line_tells_what_the_headers_say_and_keeps_bytes_that_are_no_text() -> None:
    line = json.loads(line_of(read([*copied(a_failed()).headers, ("raw", b"\xff")], value=b"\xfe")))
    assert line["position"] == {"topic": "dead", "partition": 1, "offset": 9}
    assert (line["key"], line["value"]) == ("k", {"base64": "/g=="})
    assert ["raw", {"base64": "/w=="}] in line["headers"]
    assert (line["reason"], line["attempts"], line["original_topic"]) == (
        "RETRIES_EXHAUSTED",
        3,
        "orders",
    )


@pytest.mark.parametrize(
    "line", ["", "[]", "{}", "nonsense", '{"position": 3}', line_of(read(None))[:-20]]
)
def test_what_is_no_line_of_an_export_is_refused(line: str, golden: Golden) -> None:
    with golden.raises(ValueError):
        read_line(line)


def test_broken_base64_is_refused(golden: Golden) -> None:
    line = json.loads(line_of(read(None, value=b"\xff")))
    line["value"] = {"base64": "%%"}
    with golden.raises(ValueError):
        read_line(json.dumps(line))
