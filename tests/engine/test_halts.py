"""Partitions and workers that a person has paused."""

from __future__ import annotations

import pytest

from tests.engine.driver import Driven
from tests.engine.support import ORDERS, OTHERS, notes, spent_after
from window_consumer.engine.decisions import Assigned
from window_consumer.engine.guards.interventions import PauseRequest
from window_consumer.engine.scheduling.batching import BatchRules
from window_consumer.engine.snapshot import take_snapshot
from window_consumer.engine.windows_snapshot import PauseSnapshot


def halt(driven: Driven, name: object = None, *, halted: bool = True) -> bool:
    return driven.engine.on_halted(name, driven.now, halted=halted)  # type: ignore[arg-type] # None or a name


def offsets_started(driven: Driven, seconds: float = 0.0) -> list[int]:
    return [m.offset() for slice_ in driven.tick(seconds).dispatch for m in slice_.messages]


@pytest.mark.parametrize("name", [None, ORDERS])
def test_what_is_paused_starts_nothing_and_takes_up_where_it_was(name: object) -> None:
    driven = Driven()
    halt(driven, name)
    driven.deliver(*notes(0, 1))
    assert offsets_started(driven, 5.0) == []
    halt(driven, name, halted=False)
    assert offsets_started(driven) == [0, 1]


def test_what_runs_may_finish_and_is_committed_while_the_rest_is_taken_back() -> None:
    driven = Driven(slots=1, commit_interval_s=0.1, window_cells=8, cell_records=1)
    driven.deliver(*notes(*range(6)))
    driven.tick()
    (running, *_) = driven.out
    driven.claim(running, 1)
    halt(driven)
    driven.finish_all()
    assert driven.committable == 1
    assert [each.next_offset for each in driven.tick(1.0).commit] == [1]
    assert driven.running_offsets == []
    halt(driven, halted=False)
    driven.tick()
    driven.finish_all()
    assert driven.committable == 6


def test_who_paused_the_worker_since_when_and_why_is_shown_until_it_is_resumed() -> None:
    driven = Driven()
    for user in ("ops", "anna"):
        driven.engine.on_halted(None, driven.now, PauseRequest(user, "bank"), halted=True)
        driven.tick(2.0)
    seen = take_snapshot(driven.engine, driven.now, 0.0).pause
    assert seen == PauseSnapshot("anna", "bank", 4.0)
    halt(driven, ORDERS)
    halt(driven, halted=False)
    assert take_snapshot(driven.engine, driven.now, 0.0).pause is None


def test_one_partition_is_paused_and_the_others_go_on() -> None:
    driven = Driven(names=(ORDERS, OTHERS))
    assert halt(driven, OTHERS)
    driven.deliver(*notes(0))
    driven.deliver(*notes(0), name=OTHERS)
    assert [each.partition.name for each in driven.tick().dispatch] == [ORDERS]


def test_a_retry_that_is_due_waits_for_the_end_of_the_pause() -> None:
    driven = Driven(retry=spent_after(3))
    driven.deliver(*notes(0))
    driven.tick()
    driven.fail(driven.out[0], 0)
    halt(driven)
    assert offsets_started(driven, 100.0) == []
    halt(driven, halted=False)
    assert offsets_started(driven) == [0]


def test_copies_of_what_had_failed_leave_during_a_pause() -> None:
    driven = Driven(retry=spent_after(1))
    driven.deliver(*notes(0))
    driven.tick()
    driven.fail(driven.out[0], 0)
    halt(driven)
    assert len(driven.published()) == 1


def test_a_batch_that_was_gathered_waits_and_does_not_wake_anybody() -> None:
    rules = BatchRules(max_records=10, min_records=5, max_wait_s=0.5)
    driven = Driven(batch=rules)
    driven.deliver(*notes(0, 1))
    driven.tick()
    halt(driven)
    assert offsets_started(driven, 5.0) == []
    assert driven.engine.wait_s(driven.now, 0.1) > 0.0
    halt(driven, halted=False)
    driven.tick()
    assert offsets_started(driven, 1.0) == [0, 1]


def test_a_worker_stays_paused_whatever_is_assigned_to_it() -> None:
    driven = Driven()
    halt(driven)
    driven.engine.on_assigned([Assigned(OTHERS, 0, committed=(0, ""))], driven.now)
    driven.deliver(*notes(0), name=OTHERS)
    assert offsets_started(driven) == []
    halt(driven, halted=False)
    assert offsets_started(driven) == [0]


def test_the_pause_of_a_partition_ends_when_it_is_given_up() -> None:
    driven = Driven()
    halt(driven, ORDERS)
    driven.engine.on_revoking([ORDERS], driven.now)
    driven.engine.on_revoked([ORDERS], driven.now)
    driven.engine.on_assigned([Assigned(ORDERS, 0, committed=(0, ""))], driven.now)
    driven.deliver(*notes(0))
    assert offsets_started(driven) == [0]


def test_a_worker_that_goes_on_leaves_partitions_paused_that_were_paused_alone() -> None:
    driven = Driven(names=(ORDERS, OTHERS))
    halt(driven, OTHERS)
    halt(driven)
    halt(driven, halted=False)
    driven.deliver(*notes(0))
    driven.deliver(*notes(7), name=OTHERS)
    assert offsets_started(driven) == [0]


def test_nobody_pauses_a_partition_of_others() -> None:
    assert not halt(Driven(), OTHERS)


def test_a_pause_is_seen_and_is_no_hovering() -> None:
    driven = Driven(slots=8, window_cells=4, cell_records=1)
    driven.deliver(*notes(0, 1))
    halt(driven)
    driven.tick(60.0)
    seen = driven.snapshot()
    assert (seen.halted, seen.partitions[0].halted, seen.partitions[0].row) == (True, True, "ww")
    assert not driven.last.hovering
