from __future__ import annotations

import base64
from itertools import accumulate

import pytest
from attrs import evolve
from hypothesis import given
from hypothesis import strategies as st

from window_consumer.engine.commits.commit_metadata import (
    MAX_BYTES,
    MAX_CRASHES,
    CommitNote,
    decode,
    encode,
    topic_hash,
    worst_case_bytes,
)


def ranges_from(base: int, lengths: list[int]) -> tuple[range, ...]:
    """Alternating unfinished and finished lengths, each at least 1, from ``base`` on."""
    ends = list(accumulate(lengths, initial=base))
    return tuple(range(start, stop) for start, stop in zip(ends[1::2], ends[2::2], strict=False))


notes = st.builds(
    lambda base, lengths, hashed, clean, unclean, known, suspect, passes, crashes: CommitNote(
        next_offset=base,
        topic_hash=hashed,
        clean=clean,
        finished=ranges_from(base, lengths),
        unclean_ends=unclean,
        known_partitions=known,
        suspect=None if suspect is None else base + suspect,
        passes=passes,
        crashes=tuple((base + distance, times) for distance, times in sorted(crashes.items())),
    ),
    st.integers(0, 2**50),
    st.lists(st.integers(1, 400), max_size=80),
    st.integers(0, 2**64 - 1),
    st.booleans(),
    st.integers(0, 1000),
    st.integers(0, 10_000),
    st.none() | st.integers(0, 1000),
    st.integers(0, 3),
    st.dictionaries(st.integers(0, 1000), st.integers(1, 5), max_size=MAX_CRASHES),
)


@given(
    notes, st.integers(0, 2**40), st.integers(0, 10**6), st.lists(st.integers(1, 40), max_size=9)
)
def test_a_note_of_a_wheel_is_read_back_as_it_was(
    note: CommitNote, fired: int, waiting: int, lengths: list[int]
) -> None:
    delivered = tuple((each.start, each.stop) for each in ranges_from(note.next_offset, lengths))
    note = evolve(note, fired=fired, waiting=waiting, delivered=delivered)
    text, complete = encode(note)
    assert complete
    assert decode(text) == note


@given(notes)
def test_a_note_that_fits_is_read_back_as_it_was(note: CommitNote) -> None:
    text, complete = encode(note)
    assert complete
    assert decode(text) == note


@given(notes, st.integers(60, 400))
def test_a_note_never_takes_more_bytes_than_it_may(note: CommitNote, max_bytes: int) -> None:
    text, complete = encode(note, max_bytes)
    assert len(text) <= max_bytes
    back = decode(text)
    assert back is not None
    assert complete == (back.finished == note.finished)


@given(notes, st.integers(60, 400))
def test_what_does_not_fit_is_left_out_from_the_far_end(note: CommitNote, max_bytes: int) -> None:
    back = decode(encode(note, max_bytes)[0])
    assert back is not None
    assert back.finished == note.finished[: len(back.finished)]
    assert back.next_offset == note.next_offset


@given(st.lists(st.booleans(), min_size=1, max_size=3000))
def test_no_pattern_of_a_window_without_holes_needs_more_than_the_worst_case(
    finished: list[bool],
) -> None:
    base = 2**40
    runs: list[range] = []
    for offset, done in enumerate(finished, start=base):
        if not done:
            continue
        if runs and runs[-1].stop == offset:
            runs[-1] = range(runs[-1].start, offset + 1)
        else:
            runs.append(range(offset, offset + 1))
    crashes = tuple((base + 2**20 + number, 1000) for number in range(MAX_CRASHES))
    note = CommitNote(base, 2**63, False, tuple(runs), 10**6, None, 10**6, 100, crashes)
    text, complete = encode(note)
    assert complete
    assert len(text) <= worst_case_bytes(len(finished))


def test_the_default_window_always_fits_into_a_commit() -> None:
    assert worst_case_bytes(32 * 500) <= MAX_BYTES


def test_every_second_record_of_a_full_default_window_fits() -> None:
    finished = tuple(range(offset, offset + 1) for offset in range(1, 16_000, 2))
    text, complete = encode(CommitNote(0, 1, False, finished))
    assert complete
    assert len(text) < 0.75 * MAX_BYTES


@pytest.mark.parametrize(
    "text",
    [
        None,
        "",
        "kafka-streams-v2",
        "wc1.",
        "wc1.!!!",
        "wc1.AAAA",
        "wc2." + "A" * 40,
        "wc1." + base64.urlsafe_b64encode(b"\xff" * 60).decode(),
        '{"json": true}',
        "ÿ" * 30,
    ],
)
def test_metadata_of_somebody_else_is_not_taken_for_ours(text: str | None) -> None:
    assert decode(text) is None


@given(st.text(max_size=200))
def test_no_text_breaks_the_decoder(text: str) -> None:
    for whole in (text, "wc1." + text):
        note = decode(whole)
        assert note is None or note.next_offset >= 0


@given(st.binary(max_size=200))
def test_no_bytes_behind_our_prefix_break_the_decoder(data: bytes) -> None:
    note = decode("wc1." + base64.urlsafe_b64encode(data).decode().rstrip("="))
    assert note is None or note.next_offset >= 0


def test_a_text_from_before_crashes_were_counted_is_read_as_ever() -> None:
    assert decode("wc1.AAAAAAAAAAAqAgAABAUH") == CommitNote(
        42, finished=(range(47, 54),), known_partitions=4
    )


def test_a_text_with_a_flag_of_a_later_version_is_not_read() -> None:
    head = bytes(8) + bytes((42, 1 << 4, 0, 0, 4, 5, 7))
    assert decode("wc1." + base64.urlsafe_b64encode(head).decode().rstrip("=")) is None


def test_a_suspect_fits_into_the_smallest_text_and_crashes_that_do_not_are_left_out() -> None:
    crashes = tuple((2**40 + number, 3) for number in range(100))
    note = CommitNote(2**40, 2**63, False, (), 3, 2**40 + 100, 4, 1, crashes)
    for max_bytes, kept in ((32, 0), (100, MAX_CRASHES), (4095, MAX_CRASHES)):
        text, _ = encode(note, max_bytes)
        back = decode(text)
        assert back is not None
        assert len(text) <= max_bytes
        assert back.suspect == note.suspect
        assert back.crashes == crashes[:kept]


def test_topics_have_different_hashes_and_an_unknown_id_has_none() -> None:
    first, second = topic_hash("AAAAAAAAAAAAAAAAAAAAAA"), topic_hash("AAAAAAAAAAAAAAAAAAAAAQ")
    assert first != second
    assert 0 not in (first, second)
    assert topic_hash(None) == 0
