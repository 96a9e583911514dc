from __future__ import annotations

from typing import Any

import pytest

from tests.engine.support import ORDERS
from window_consumer.engine.commits.commit_metadata import CommitNote, encode
from window_consumer.engine.commits.start_offset import (
    Found,
    NoOffsetError,
    Start,
    needs_log,
    partitions_known,
    resolve,
)
from window_consumer.model.log_events import LogEvent
from window_consumer.model.protocols import CommittedOffset

HASH = 77
NOTHING = CommittedOffset(None, "")


def noted(offset: int, *finished: range, of: int | None = None, **fields: Any) -> CommittedOffset:
    note = CommitNote(
        next_offset=offset if of is None else of,
        finished=finished,
        **{"topic_hash": HASH, "known_partitions": 4, **fields},
    )
    return CommittedOffset(offset, encode(note)[0])


def begin(committed: CommittedOffset, rule: Any = "earliest", **found: Any) -> Start:
    given = {"log": (5, 100), "topic_hash": HASH, "known_partitions": 4, **found}
    return resolve(Found(ORDERS, committed, **given), rule)


@pytest.mark.parametrize(("rule", "offset"), [("earliest", 5), ("latest", 100)])
def test_without_an_offset_the_rule_decides(rule: str, offset: int) -> None:
    start = begin(NOTHING, rule)
    assert (start.assigned.next_offset, start.assigned.committed) == (offset, None)


def test_without_an_offset_the_rule_may_be_to_fail() -> None:
    with pytest.raises(NoOffsetError, match=r"orders\[0\].*on_no_offset is fail"):
        begin(NOTHING, "fail")


@pytest.mark.parametrize("rule", ["latest", "fail"])
def test_a_partition_added_after_the_first_start_begins_at_the_earliest(rule: str) -> None:
    assert begin(NOTHING, rule, known_partitions=0).assigned.next_offset == 5


def test_an_offset_is_taken_as_it_is() -> None:
    start = begin(CommittedOffset(42, ""))
    assert (start.assigned.next_offset, start.assigned.finished) == (42, ())
    assert (start.event, start.warning) == (None, "")


def test_finished_ranges_are_used_where_everything_fits() -> None:
    committed = noted(42, range(44, 50))
    start = begin(committed)
    assert start.assigned.finished == (range(44, 50),)
    assert start.assigned.committed == (42, committed.metadata)
    assert start.event is None


@pytest.mark.parametrize(
    ("committed", "found", "why"),
    [
        (noted(50, range(44, 48), of=42), {}, "belong to offset 42, not 50"),
        (noted(42, range(44, 50)), {"topic_hash": 0}, "cannot be compared"),
        (noted(42, range(44, 50), topic_hash=0), {}, "cannot be compared"),
        (noted(42, range(44, 50)), {"log": (0, 49)}, "they end at 50, the log at 49"),
    ],
)
def test_ranges_that_do_not_fit_are_not_used_and_a_warning_says_why(
    committed: CommittedOffset, found: dict[str, Any], why: str
) -> None:
    start = begin(committed, **found)
    assert start.assigned.next_offset == committed.next_offset
    assert start.assigned.finished == ()
    assert start.event == LogEvent.COMMIT_RANGES_IGNORED
    assert why in start.warning


def test_metadata_of_somebody_else_is_ignored_with_a_warning() -> None:
    start = begin(CommittedOffset(42, "streams:v2"))
    assert start.assigned.next_offset == 42
    assert start.event == LogEvent.COMMIT_METADATA_IGNORED


def test_an_offset_of_a_topic_that_was_made_anew_is_not_used() -> None:
    start = begin(noted(42, topic_hash=78), log=(0, 3))
    assert (start.assigned.next_offset, start.assigned.committed) == (0, None)
    assert start.event == LogEvent.TOPIC_RECREATED


def test_an_offset_that_a_mirror_translated_is_used_without_the_string_beside_it() -> None:
    copied = noted(42, range(52, 60), of=50, topic_hash=78, unclean_ends=2)
    start = begin(copied)
    assert (start.assigned.next_offset, start.assigned.finished) == (42, ())
    assert (start.assigned.committed, start.assigned.unclean) == (None, None)
    assert start.event == LogEvent.COMMIT_RANGES_IGNORED
    assert begin(noted(42, of=50, topic_hash=78)) == Start(start.assigned)


def test_the_log_is_asked_only_where_it_matters() -> None:
    assert needs_log(NOTHING, HASH)
    assert needs_log(noted(42, range(44, 50)), HASH)
    assert needs_log(noted(42, topic_hash=78), HASH)
    assert needs_log(noted(42), HASH)
    assert needs_log(noted(42, clean=True, crashes=((42, 1),)), HASH)
    assert not needs_log(noted(42, clean=True), HASH)
    assert not needs_log(CommittedOffset(42, ""), HASH)


def test_a_group_that_starts_knows_the_partitions_that_there_are() -> None:
    assert partitions_known([NOTHING] * 3, 3) == 3


def test_a_group_that_has_started_remembers_how_many_there_were() -> None:
    assert partitions_known([noted(1), NOTHING, NOTHING], 6) == 4


def test_offsets_of_another_consumer_do_not_tell_which_partitions_are_new() -> None:
    assert partitions_known([CommittedOffset(3, ""), NOTHING], 6) == 6
    assert partitions_known([CommittedOffset(3, ""), noted(1), NOTHING], 6) == 4
