"""Records that a person skips, or sends to the dead letters."""

from __future__ import annotations

from typing import Any

import pytest

from tests.engine.driver import Driven
from tests.engine.support import ORDERS, OTHERS, failure, note_of, notes, spent_after
from window_consumer.engine.guards.breaker_state import BreakerRules
from window_consumer.engine.guards.interventions import Intervention, InterventionResult
from window_consumer.engine.observer import Observer
from window_consumer.engine.retry.failed_record import FailedRecord
from window_consumer.engine.scheduling.batching import BatchRules
from window_consumer.model.errors import PublishFailedError
from window_consumer.model.headers import Reason
from window_consumer.model.outcome import Outcome

SKIP, DEAD_LETTER = Intervention.SKIP, Intervention.DEAD_LETTER
KEYS = [b"a", b"a", b"b"]
BLOCKING: dict[str, Any] = {"ordering": "key", "retry": spent_after(1, on_failure="block")}


def intervene(driven: Driven, offset: int, wanted: Intervention = SKIP) -> InterventionResult:
    return driven.engine.on_intervention(ORDERS, offset, wanted, driven.now)


def with_a_failed_record(**rules: Any) -> Driven:
    """Return an engine in which record 0 has failed; record 1 has the same key, and 2 is done."""
    driven = Driven(**rules)
    driven.deliver(*notes(0, 1, 2, keys=KEYS))
    driven.tick()
    for slice_ in list(driven.out):
        driven.fail(slice_, 0)
    for slice_ in driven.tick().dispatch:
        driven.finish(slice_)
    return driven


class Leaving(Observer):
    def __init__(self) -> None:
        self.left_with: list[tuple[int, Outcome, str | None]] = []

    def left(self, failed: FailedRecord, outcome: Outcome, now: float) -> None:  # noqa: ARG002 - as declared
        self.left_with.append((failed.message.offset(), outcome, failed.reason))


def test_a_skipped_record_frees_its_lane_and_is_counted_and_committed() -> None:
    driven = with_a_failed_record(**BLOCKING)
    received = Leaving()
    driven.engine.observe(received)
    assert driven.out == []
    assert driven.committable == 0
    assert intervene(driven, 0) is InterventionResult.SKIPPED
    assert [each.offset() for each in driven.tick().dispatch[0].messages] == [1]
    driven.finish_all()
    assert driven.committable == 3
    assert received.left_with == [(0, Outcome.SKIPPED, Reason.MANUAL)]
    counters = driven.engine.counters
    assert (counters.skipped, counters.dead_lettered, counters.processed) == (1, 0, 2)
    assert not driven.engine.partitions[ORDERS].ordering.lanes.busy
    assert driven.engine.budget.used == 0
    (commit,) = driven.tick(1.0).commit
    assert (commit.next_offset, list(note_of(commit).finished)) == (3, [])


def test_a_record_sent_to_the_dead_letters_is_finished_by_the_ack_of_its_copy() -> None:
    driven = with_a_failed_record(**BLOCKING)
    received = Leaving()
    driven.engine.observe(received)
    assert intervene(driven, 0, DEAD_LETTER) is InterventionResult.LEAVING
    failed = driven.published_one()
    assert (failed.reason, failed.level, failed.end) == (Reason.MANUAL, None, "dead_letter")
    assert intervene(driven, 0) is InterventionResult.IN_FLIGHT
    assert driven.committable == 0
    driven.copied(failed)
    driven.finish_all()
    driven.tick()
    driven.finish_all()
    assert driven.committable == 3
    assert received.left_with == [(0, Outcome.DEAD_LETTERED, Reason.MANUAL)]
    assert driven.engine.counters.dead_by == {"MANUAL": 1}
    assert intervene(driven, 0) is InterventionResult.FINISHED


def test_a_record_whose_copy_is_refused_can_be_skipped() -> None:
    driven = with_a_failed_record(retry=spent_after(1))
    too_large = PublishFailedError("too large", too_large=True)
    for _ in range(3):
        (failed,) = driven.last_published
        driven.copied(failed, too_large)
        driven.tick(20.0)
    (failed,) = driven.last_published
    driven.copied(failed, too_large)
    assert driven.committable == 0
    assert intervene(driven, 0) is InterventionResult.SKIPPED
    assert driven.committable == 3
    assert driven.published(20.0) == []


def test_a_retry_that_waits_or_is_due_or_is_held_by_a_pause_can_be_skipped() -> None:
    for halted, wait_s in ((False, 0.0), (True, 0.0), (True, 100.0)):
        driven = with_a_failed_record(retry=spent_after(3))
        driven.engine.on_halted(None, driven.now, halted=halted)
        driven.tick(wait_s)
        assert intervene(driven, 0) is InterventionResult.SKIPPED
        driven.engine.on_halted(None, driven.now, halted=False)
        assert driven.tick(100.0).dispatch == []
        assert driven.committable == 3


def test_a_retry_that_is_handed_out_and_has_not_begun_is_taken_back_and_skipped() -> None:
    driven = with_a_failed_record(**BLOCKING)
    driven.tick(10.0)
    assert driven.running_offsets == [0]
    assert intervene(driven, 0) is InterventionResult.SKIPPED
    driven.finish_all()
    assert driven.committable == 3


def test_a_record_whose_call_runs_is_left_alone() -> None:
    driven = with_a_failed_record(**BLOCKING)
    driven.tick(10.0)
    (slice_,) = driven.out
    (message,) = driven.claim(slice_)
    for wanted in Intervention:
        assert intervene(driven, 0, wanted) is InterventionResult.RUNNING
    slice_.deviate().failed.append((message, failure()))
    driven.finish(slice_)
    assert intervene(driven, 0) is InterventionResult.SKIPPED


def test_other_records_are_refused_with_the_reason() -> None:
    driven = Driven(names=(ORDERS,), ordering="key", slots=1, cell_records=2)
    driven.deliver(*notes(0, 1, 2, 9, keys=[b"a", b"a", b"a", b"a"]))
    driven.engine.on_halted(None, driven.now, halted=True)
    driven.tick()
    for offset in (1, 9):
        assert intervene(driven, offset) is InterventionResult.NOT_FAILED
    for offset in (5, 10, 2**62):
        assert intervene(driven, offset) is InterventionResult.NOT_IN_WINDOW
    elsewhere = driven.engine.on_intervention(OTHERS, 0, SKIP, driven.now)
    assert elsewhere is InterventionResult.NOT_ASSIGNED
    driven.engine.on_halted(None, driven.now, halted=False)
    for _ in range(4):
        driven.tick()
        driven.finish_all()
    assert intervene(driven, 9) is InterventionResult.FINISHED


@pytest.mark.parametrize("when_spent", ["drop", "stop"])
def test_without_dead_letters_a_record_can_only_be_skipped(when_spent: str) -> None:
    rules = spent_after(3, on_failure="block", when_spent=when_spent)
    driven = with_a_failed_record(ordering="key", retry=rules)
    assert intervene(driven, 0, DEAD_LETTER) is InterventionResult.NO_DEAD_LETTERS
    assert intervene(driven, 0) is InterventionResult.SKIPPED


def test_who_is_sent_away_by_hand_leaves_while_the_breaker_is_open() -> None:
    breaker = BreakerRules(enabled=True)
    driven = Driven(slots=1, cell_records=200, retry=spent_after(1), breaker=breaker)
    driven.deliver(*notes(*range(200)))
    for _ in range(50):
        driven.tick(0.1)
        for slice_ in list(driven.out):
            driven.fail(slice_, *range(200))
    assert not driven.engine.breaker.lets_start
    assert driven.published() == []
    last = max(driven.failing_offsets())
    assert intervene(driven, last, DEAD_LETTER) is InterventionResult.LEAVING
    assert [each.message.offset() for each in driven.published()] == [last]


def test_of_a_batch_that_is_called_again_one_record_is_taken_out() -> None:
    rules = BatchRules(max_records=3, min_records=3, max_wait_s=0.1)
    driven = Driven(ordering="key", batch=rules, retry=spent_after(1, on_failure="block"))
    driven.deliver(*notes(0, 1, 2, keys=KEYS))
    driven.tick(1.0)
    driven.fail(driven.out[0], 0, 1, 2)
    driven.tick()
    assert intervene(driven, 0) is InterventionResult.SKIPPED
    assert driven.committable == 0  # its cell is open
    driven.tick(100.0)
    assert driven.running_offsets == [1, 2]
    driven.finish_all()
    assert driven.committable == 3
