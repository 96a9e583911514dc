from __future__ import annotations

from tests.engine.driver import Driven
from tests.engine.support import ONE_BY_ONE, ORDERS, OTHERS, notes, spent_after
from window_consumer.engine.commits.commit_metadata import decode
from window_consumer.engine.decisions import Assigned


def test_a_completion_of_an_earlier_epoch_changes_nothing() -> None:
    driven = Driven()
    driven.deliver(*notes(0, 1))
    driven.tick()
    late = list(driven.out)
    for slice_ in late:
        driven.claim(slice_)
    driven.engine.on_lost([ORDERS], driven.now)
    driven.engine.on_assigned([Assigned(ORDERS, 0, committed=(0, ""))], driven.now)
    driven.deliver(*notes(0, 1))
    for slice_ in late:
        driven.finish(slice_)
    assert driven.committable == 0
    assert (driven.engine.counters.late, driven.engine.counters.processed) == (2, 0)


def test_an_ack_of_an_earlier_epoch_changes_nothing() -> None:
    driven = Driven(retry=spent_after(1))
    driven.deliver(*notes(0))
    driven.tick()
    driven.fail(driven.out[0], 0)
    failed = driven.published_one()
    driven.engine.on_lost([ORDERS], driven.now)
    driven.copied(failed)
    assert driven.engine.counters.dead_lettered == 0
    assert driven.unacked == 0


def test_a_revoke_takes_back_what_has_not_started_and_waits_for_what_runs() -> None:
    driven = Driven(slots=1)
    driven.engine.dispatcher.length.records = 3
    driven.deliver(*notes(0, 1, 2))
    driven.tick()
    (slice_,) = driven.out
    driven.claim(slice_, 1)
    driven.engine.on_revoking([ORDERS], driven.now)
    assert driven.engine.work.busy([ORDERS])
    assert next(slice_.unclaimed, None) is None
    driven.finish(slice_)
    assert not driven.engine.work.busy([ORDERS])
    commits, outlived = driven.engine.on_revoked([ORDERS], driven.now)
    note = decode(commits[0].metadata)
    assert note is not None
    assert (commits[0].next_offset, note.finished, note.clean) == (0, (range(1),), True)
    assert outlived == []


def test_a_call_that_outlives_its_partition_is_named_and_cancelled() -> None:
    driven = Driven(slots=1, ordering="key")
    driven.deliver(*notes(5, keys=[b"k"]))
    driven.tick()
    (slice_,) = driven.out
    driven.claim(slice_, 1)
    driven.engine.on_revoking([ORDERS], driven.now)
    _, outlived = driven.engine.on_revoked([ORDERS], driven.now)
    assert [(each.name, each.offset, each.key) for each in outlived] == [(ORDERS, 5, b"k")]
    assert not outlived[0].abandoned
    assert slice_.call.cancelled


def test_a_queued_slice_of_a_lost_partition_runs_nothing() -> None:
    driven = Driven(slots=1)
    driven.deliver(*notes(0, 1))
    driven.tick()
    assert driven.engine.on_lost([ORDERS], driven.now) == []
    assert all(next(slice_.unclaimed, None) is None for slice_ in driven.out)


def test_nothing_new_starts_while_draining() -> None:
    driven = Driven(slots=1, retry=spent_after(3))
    driven.deliver(*notes(0, 1, 2))
    driven.tick()
    driven.claim(driven.out[0], 1)
    driven.engine.on_stopping(driven.now)
    driven.deliver(*notes(3, 4))
    assert driven.engine.appetite() == 0
    for slice_ in list(driven.out):
        driven.finish(slice_)
    assert driven.tick(10.0).dispatch == []
    assert driven.engine.work.unfinished() == 2


def test_records_for_a_partition_that_is_not_ours_are_ignored() -> None:
    driven = Driven()
    driven.deliver(*notes(0), name=OTHERS)
    driven.tick()
    assert (driven.out, driven.engine.counters.stale) == ([], 1)


def test_a_partition_that_is_given_up_leaves_nothing_behind() -> None:
    driven = Driven(ordering="key", retry=spent_after(3), **ONE_BY_ONE)
    driven.deliver(*notes(*range(30), keys=[b"a"] * 30))
    driven.tick()
    driven.fail(driven.out[0], 0)
    driven.tick()
    driven.engine.on_lost([ORDERS], driven.now)
    while driven.out:
        driven.finish(driven.out[0])
    assert driven.engine.budget.used == 0
    assert driven.tick(60.0).dispatch == []
    assert not driven.engine.dispatcher.out


def test_records_left_out_while_draining_are_not_covered_by_the_position() -> None:
    driven = Driven()
    driven.engine.on_stopping(driven.now)
    driven.deliver(*notes(0, 1))
    driven.engine.on_positions({ORDERS: 2})
    commits, _ = driven.engine.on_revoked([ORDERS], driven.now)
    assert [commit.next_offset for commit in commits] == [0]


def test_the_position_counts_up_to_the_first_record_that_was_refused() -> None:
    driven = Driven(names=())
    driven.engine.on_assigned([Assigned(ORDERS, 5, committed=(5, ""))], driven.now)
    driven.engine.on_stopping(driven.now)
    driven.deliver(*notes(7, 8))
    driven.deliver(*notes(9))
    driven.engine.on_positions({ORDERS: 10})
    commits, _ = driven.engine.on_revoked([ORDERS], driven.now)
    assert [commit.next_offset for commit in commits] == [7]


def test_a_paused_partition_is_not_resumed_while_draining() -> None:
    driven = Driven(window_cells=2, cell_records=2, slots=8, batch_records=1)
    driven.deliver(*notes(*range(6)))
    assert driven.tick(0.01).pause == [ORDERS]
    driven.finish(driven.out[0])
    driven.finish(driven.out[0])
    assert driven.tick(0.01).resume == []
    assert not driven.engine.partitions[ORDERS].buffered
    for slice_ in driven.out:
        driven.claim(slice_)
    driven.engine.on_stopping(driven.now)
    while driven.out:
        driven.finish(driven.out[0])
    assert driven.tick(0.01).resume == []
