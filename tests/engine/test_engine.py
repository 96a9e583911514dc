from __future__ import annotations

import pytest

from tests.engine.driver import Driven
from tests.engine.support import ONE_BY_ONE, ORDERS, OTHERS, failure, notes, spent_after
from tests.golden_texts import Golden
from window_consumer.engine.commits.commit_metadata import decode
from window_consumer.engine.decisions import Assigned
from window_consumer.engine.retry.failed_record import Detail
from window_consumer.model.errors import (
    CommitFailedError,
    Fatal,
    PublishFailedError,
    RetryLater,
    Skip,
)
from window_consumer.model.headers import Reason
from window_consumer.model.outcome import Outcome
from window_consumer.model.record import TopicPartition

# ---- dispatch and commit


def test_a_record_is_committed_after_its_handler_has_returned_and_not_before() -> None:
    driven = Driven()
    driven.deliver(*notes(0))
    driven.tick()
    assert driven.tick(1.0).commit == []
    driven.finish(driven.out[0])
    commits = driven.tick(1.0).commit
    assert [(commit.name, commit.next_offset) for commit in commits] == [(ORDERS, 1)]


def test_records_done_beyond_the_start_cell_travel_in_the_metadata() -> None:
    driven = Driven(**ONE_BY_ONE)
    driven.deliver(*notes(*range(8)))
    driven.tick()
    for slice_ in list(driven.out):
        if slice_.messages[0].offset() != 0:
            driven.finish(slice_)
            driven.tick()
    (commit,) = driven.tick(1.0).commit
    note = decode(commit.metadata)
    assert commit.next_offset == 0
    assert note is not None
    assert [offset for run in note.finished for offset in run] == [
        offset for offset in range(8) if offset not in driven.running_offsets
    ]


def test_an_unchanged_commit_is_not_sent_again() -> None:
    driven = Driven()
    driven.deliver(*notes(0))
    driven.tick()
    driven.finish(driven.out[0])
    assert len(driven.tick(1.0).commit) == 1
    driven.engine.on_committed({ORDERS: None}, driven.now)
    assert driven.tick(10.0).commit == []


def test_a_question_about_the_membership_is_answered_by_a_commit_made_after_it() -> None:
    driven = Driven()
    driven.deliver(*notes(0))
    driven.tick()
    driven.finish(driven.out[0])
    membership = driven.engine.partitions[ORDERS].assignment.membership
    (first,) = driven.tick(1.0).commit
    question = membership.ask()
    driven.engine.on_committed({ORDERS: None}, driven.now)
    assert not membership.has_proven(question)
    for error in (CommitFailedError("unknown member"), None):
        assert driven.tick(10.0).commit == [first]
        driven.engine.on_committed({ORDERS: error}, driven.now)
        assert membership.has_proven(question) is (error is None)
    assert driven.tick(10.0).commit == []
    driven.engine.on_lost([ORDERS], driven.now)
    assert membership.is_over


def test_a_refused_commit_is_made_again() -> None:
    driven = Driven()
    driven.deliver(*notes(0))
    driven.tick()
    driven.finish(driven.out[0])
    driven.tick(1.0)
    assert driven.tick(1.0).commit == []
    driven.engine.on_committed({ORDERS: CommitFailedError("rebalance in progress")}, driven.now)
    assert [commit.next_offset for commit in driven.tick(1.0).commit] == [1]
    assert driven.engine.counters.commit_failures == 1


def test_metadata_that_the_broker_finds_too_large_becomes_smaller() -> None:
    driven = Driven(slots=8, window_cells=32, cell_records=100)
    driven.deliver(*notes(*range(0, 6000, 2)))
    driven.tick()
    for _ in range(40):
        for slice_ in driven.out[1::2]:
            driven.finish(slice_)
        driven.tick()
    (commit,) = driven.tick(1.0).commit
    refusal = CommitFailedError("too large", metadata_too_large=True)
    while len(commit.metadata) > 60:
        size = len(commit.metadata)
        driven.engine.on_committed({ORDERS: refusal}, driven.now)
        (commit,) = driven.tick(1.0).commit
        if len(commit.metadata) == size:
            break
    assert len(commit.metadata) <= 2048


def test_partitions_that_are_refused_together_halve_the_metadata_once() -> None:
    names = [TopicPartition("orders", number) for number in range(8)]
    driven = Driven(names=names, window_cells=32, cell_records=100)
    for name in names:
        driven.deliver(*notes(*range(800)), name=name)
        partition = driven.engine.partitions[name]
        partition.finish(list(range(1, 800, 2)), Outcome.DONE, 0, driven.now)
    commits = driven.tick(1.0).commit
    assert {commit.name for commit in commits} == set(names)
    smallest = min(len(commit.metadata) for commit in commits)
    assert smallest > 80
    refusal = CommitFailedError("too large", metadata_too_large=True)
    driven.engine.on_committed(dict.fromkeys(names, refusal), driven.now)
    again = driven.tick(1.0).commit
    assert {commit.name for commit in again} == set(names)
    assert max(len(commit.metadata) for commit in again) > smallest // 2 - 8


def test_a_broker_that_takes_hardly_any_metadata_gets_offsets_and_work_goes_on() -> None:
    driven = Driven(start=10**12, window_cells=4, cell_records=3)
    refusal = CommitFailedError("too large", metadata_too_large=True)
    for number in range(12):
        driven.deliver(*notes(10**12 + number))
        driven.tick()
        driven.finish_all()
        driven.tick(10.0)
        driven.engine.on_committed({ORDERS: refusal}, driven.now)
    driven.tick(10.0)
    assert driven.committable == 10**12 + 12
    assert driven.engine.counters.processed == 12


def test_a_partition_without_an_offset_commits_its_start_at_once() -> None:
    driven = Driven()
    driven.engine.on_assigned([Assigned(OTHERS, 17)], driven.now)
    assert [(c.name, c.next_offset) for c in driven.tick().commit] == [(OTHERS, 17)]


def test_an_idle_partition_commits_the_position_beyond_a_transaction_marker() -> None:
    driven = Driven()
    driven.deliver(*notes(0, 1))
    driven.tick()
    driven.finish_all()
    driven.engine.on_positions({ORDERS: 3})
    assert [commit.next_offset for commit in driven.tick(1.0).commit] == [3]


def test_a_position_counts_only_while_nothing_is_open() -> None:
    driven = Driven()
    driven.deliver(*notes(0, 1))
    driven.tick()
    driven.engine.on_positions({ORDERS: 2})
    assert driven.tick(1.0).commit == []


def test_records_finished_before_the_assignment_are_not_called_again() -> None:
    driven = Driven()
    driven.engine.on_assigned(
        [Assigned(ORDERS, 10, finished=(range(11, 13), range(20, 22)), committed=(10, ""))],
        driven.now,
    )
    driven.deliver(*notes(10, 11, 12, 13, 19, 20, 21, 30))
    driven.tick()
    assert driven.running_offsets == [10, 13, 19, 30]
    driven.finish_all()
    assert driven.engine.counters.earlier == 4
    assert driven.committable == 31


def test_a_window_of_records_that_were_finished_before_slides_at_once() -> None:
    driven = Driven()
    driven.engine.on_assigned(
        [Assigned(ORDERS, 10, finished=(range(10, 13),), committed=(10, ""))], driven.now
    )
    driven.deliver(*notes(10, 11, 12))
    assert [commit.next_offset for commit in driven.tick(1.0).commit] == [13]
    assert driven.tick(60.0).hovering == []


def test_a_partition_given_up_before_its_first_record_keeps_what_was_finished() -> None:
    driven = Driven()
    before = (range(11, 13), range(20, 22))
    driven.engine.on_assigned(
        [Assigned(ORDERS, 10, finished=before, committed=(10, "wc1.x"))], driven.now
    )
    driven.deliver(*notes(10, 11))
    commits, _ = driven.engine.on_revoked([ORDERS], driven.now)
    note = decode(commits[0].metadata)
    assert note is not None
    assert (note.next_offset, note.finished) == (10, before)


def test_a_delivery_is_taken_once() -> None:
    driven = Driven()
    driven.deliver(*notes(0, 1, 2))
    driven.deliver(*notes(1, 2, 3))
    driven.tick()
    assert driven.running_offsets == [0, 1, 2, 3]
    assert driven.engine.counters.stale == 2


def test_slow_handlers_get_one_record_each_and_fast_ones_many() -> None:
    driven = Driven(slots=2)
    driven.deliver(*notes(*range(1000)))
    driven.tick()
    assert {len(slice_.messages) for slice_ in driven.out} == {1}
    for slice_ in list(driven.out):
        driven.finish(slice_, elapsed=1e-5)
    driven.tick()
    assert max(len(slice_.messages) for slice_ in driven.out) > 50


def test_no_more_than_two_slices_a_slot_are_out() -> None:
    driven = Driven(slots=3)
    driven.deliver(*notes(*range(100)))
    driven.tick()
    assert len(driven.out) == 6
    assert driven.engine.appetite() == 0


# ---- order


def test_two_records_of_a_key_do_not_run_at_once() -> None:
    driven = Driven(ordering="key")
    driven.deliver(*notes(0, 1, 2, keys=[b"a", b"b", b"a"]))
    driven.tick()
    by_slice = [[m.offset() for m in slice_.messages] for slice_ in driven.out]
    assert sum(0 in offsets or 2 in offsets for offsets in by_slice) == 1


def test_a_failed_record_holds_back_its_own_lane_and_no_other() -> None:
    driven = Driven(ordering="key", retry=spent_after(3))
    driven.deliver(*notes(0, keys=[b"a"]))
    driven.tick()
    driven.fail(driven.out[0], 0)
    driven.deliver(*notes(1, 2, keys=[b"a", b"b"]))
    driven.tick()
    assert driven.running_offsets == [2]
    driven.finish_all()
    driven.tick(1.0)
    assert driven.running_offsets == [0]
    assert driven.out[0].call.attempt == 2
    driven.finish_all()
    assert driven.engine.counters.processed == 3


def test_records_held_back_in_a_slice_run_after_the_failed_one_and_in_order() -> None:
    driven = Driven(ordering="key", slots=1, retry=spent_after(2))
    driven.engine.dispatcher.length.records = 10
    driven.deliver(*notes(0, 1, 2, 3, keys=[b"a", b"a", b"b", b"a"]))
    driven.tick()
    (slice_,) = driven.out
    messages = driven.claim(slice_)
    noted = slice_.deviate()
    noted.failed.append((messages[0], failure()))
    noted.held.extend([messages[1], messages[3]])
    driven.finish(slice_)
    driven.tick()
    assert driven.running_offsets == []
    driven.tick(1.0)
    assert driven.running_offsets == [0]
    driven.finish(driven.out[0])
    order: list[int] = []
    driven.tick()
    while driven.out:
        order.extend(m.offset() for m in driven.out[0].messages)
        driven.finish(driven.out[0])
        driven.tick()
    assert order == [1, 3]


# ---- the ladder


def test_a_waiting_retry_occupies_no_slot() -> None:
    driven = Driven(slots=1, retry=spent_after(3))
    driven.deliver(*notes(0, 1))
    driven.tick()
    driven.fail(driven.out[0], 0)
    driven.tick()
    assert driven.running_offsets == [1]


def test_a_spent_record_is_finished_when_its_copy_is_acked_and_not_before() -> None:
    driven = Driven(retry=spent_after(2))
    driven.deliver(*notes(0))
    driven.tick()
    driven.fail(driven.out[0], 0)
    driven.tick(1.0)
    driven.fail(driven.out[0], 0)
    failed = driven.published_one()
    assert (failed.attempts, failed.reason) == (2, Reason.RETRIES_EXHAUSTED)
    assert driven.tick(5.0).commit == []
    driven.copied(failed)
    assert [commit.next_offset for commit in driven.tick(1.0).commit] == [1]
    assert driven.engine.counters.dead_lettered == 1


def test_a_copy_that_is_not_acked_is_sent_again_and_the_offset_is_held() -> None:
    driven = Driven(retry=spent_after(1))
    driven.deliver(*notes(0))
    driven.tick()
    driven.fail(driven.out[0], 0)
    failed = driven.published_one()
    for _ in range(5):
        driven.copied(failed, PublishFailedError("broker gone"))
        assert driven.published() == []
        assert driven.published(10.0) == [failed]
    assert driven.committable == 0
    driven.copied(failed)
    assert driven.committable == 1
    assert driven.engine.budget.used == 0


@pytest.mark.parametrize(
    ("on_oversize", "details"),
    [
        ("hold", [Detail.FULL, Detail.WITHOUT_ERROR_TEXTS, Detail.WITHOUT_ERROR_TEXTS]),
        ("reference", [Detail.FULL, Detail.WITHOUT_ERROR_TEXTS, Detail.REFERENCE]),
    ],
)
def test_a_copy_that_is_too_large_is_cut_step_by_step(
    on_oversize: str, details: list[Detail]
) -> None:
    driven = Driven(retry=spent_after(1, on_oversize=on_oversize))
    driven.deliver(*notes(0))
    driven.tick()
    driven.fail(driven.out[0], 0)
    driven.tick()
    for detail in details:
        (failed,) = driven.last_published
        assert failed.detail is detail
        driven.copied(failed, PublishFailedError("too large", too_large=True))
        driven.tick()
        if not driven.last_published:
            driven.tick(20.0)
    assert driven.committable == 0


def test_an_oversized_copy_stops_the_worker_where_the_rule_says_so() -> None:
    driven = Driven(retry=spent_after(1, on_oversize="stop"))
    driven.deliver(*notes(0))
    driven.tick()
    driven.fail(driven.out[0], 0)
    too_large = PublishFailedError("too large", too_large=True)
    for _ in range(2):
        failed = driven.published_one()
        driven.copied(failed, too_large)
    stop = driven.tick().stop
    assert stop is not None
    assert "orders[0]@0" in str(stop)


def test_when_spent_is_drop_the_record_is_finished_and_counted() -> None:
    driven = Driven(retry=spent_after(1, when_spent="drop"))
    driven.deliver(*notes(0))
    driven.tick()
    driven.fail(driven.out[0], 0)
    assert driven.published() == []
    assert (driven.engine.counters.dropped, driven.committable) == (1, 1)


def test_when_spent_is_stop_the_worker_stops_and_the_offset_is_held(golden: Golden) -> None:
    driven = Driven(retry=spent_after(1, when_spent="stop"))
    driven.deliver(*notes(0))
    driven.tick()
    driven.fail(driven.out[0], 0)
    stop = driven.tick().stop
    assert stop is not None
    golden(str(stop))
    assert driven.committable == 0


def test_fatal_leaves_without_a_retry() -> None:
    driven = Driven(retry=spent_after(5))
    driven.deliver(*notes(0))
    driven.tick()
    driven.fail(driven.out[0], 0, error=Fatal("no customer"))
    failed = driven.published_one()
    assert (failed.attempts, failed.reason) == (1, Reason.FATAL)


def test_skipped_records_are_finished_and_counted() -> None:
    driven = Driven()
    driven.deliver(*notes(0, 1))
    driven.tick()
    slice_ = driven.out[0]
    for message in driven.claim(slice_):
        slice_.deviate().skip(message, Skip())
    driven.finish(slice_)
    driven.finish_all()
    assert (driven.engine.counters.skipped, driven.engine.counters.processed) == (1, 1)
    assert driven.committable == 2


def test_a_blocking_lane_goes_on_once_its_record_succeeds() -> None:
    driven = Driven(ordering="key", retry=spent_after(1, on_failure="block"))
    driven.deliver(*notes(0, keys=[b"a"]))
    driven.tick()
    for _ in range(10):
        driven.fail(driven.out[0], 0, error=RetryLater(0.5))
        driven.tick(9.0)
    driven.deliver(*notes(1, keys=[b"a"]))
    driven.tick()
    assert driven.running_offsets == [0]
    driven.finish_all()
    assert driven.committable == 2


# ---- hovering


def test_a_hovering_start_cell_is_reported_with_offset_attempt_and_age() -> None:
    driven = Driven(hover_s=30.0, slots=1, retry=spent_after(9))
    driven.deliver(*notes(7))
    driven.tick()
    driven.fail(driven.out[0], 7)
    driven.tick(1.0)
    assert driven.tick(28.0).hovering == []
    (hovering,) = driven.tick(2.0).hovering
    assert (hovering.name, hovering.offset, hovering.attempt) == (ORDERS, 7, 2)
    assert hovering.age_s == pytest.approx(31.0)
    assert driven.tick(1.0).hovering == []
    assert len(driven.tick(30.0).hovering) == 1


def test_a_slow_start_cell_that_makes_progress_does_not_hover() -> None:
    driven = Driven(hover_s=30.0, slots=1)
    driven.deliver(*notes(*range(10)))
    driven.tick()
    for _ in range(9):
        driven.finish(driven.out[0], elapsed=20.0)
        assert driven.tick(20.0).hovering == []
