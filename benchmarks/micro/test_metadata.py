"""The metadata of commits: encoding and decoding for a default window of 16,000 records."""

from __future__ import annotations

import random
from typing import Any

import pytest

from window_consumer.engine.commits.commit_metadata import CommitNote, decode, encode

WINDOW = 32 * 500
BASE = 1_000_000
_SEED = 20_240


def nothing_beyond() -> CommitNote:
    """Return the usual case: everything finished in order."""
    return CommitNote(BASE, topic_hash=1)


def one_hovers() -> CommitNote:
    """Return the case of one open record with all behind it finished."""
    return CommitNote(BASE, topic_hash=1, finished=(range(BASE + 1, BASE + WINDOW),))


def scattered() -> CommitNote:
    """Return the bitmap's worst case: a random half of the window is finished."""
    rng = random.Random(_SEED)
    flags = [rng.random() < 0.5 for _ in range(WINDOW)]
    ranges: list[range] = []
    for offset, done in enumerate(flags, start=BASE):
        if not done or offset == BASE:
            continue
        if ranges and ranges[-1].stop == offset:
            ranges[-1] = range(ranges[-1].start, offset + 1)
        else:
            ranges.append(range(offset, offset + 1))
    return CommitNote(BASE, topic_hash=1, finished=tuple(ranges))


NOTES = [nothing_beyond(), one_hovers(), scattered()]
IDS = ["nothing beyond", "one hovers", "scattered"]


@pytest.mark.parametrize("note", NOTES, ids=IDS)
def test_encode(benchmark: Any, note: CommitNote) -> None:
    """The cost of each commit of a partition."""
    _, complete = benchmark(encode, note)
    assert complete


@pytest.mark.parametrize("note", NOTES, ids=IDS)
def test_decode(benchmark: Any, note: CommitNote) -> None:
    """The cost of each assignment of a partition."""
    text, _ = encode(note)
    assert benchmark(decode, text) == note
