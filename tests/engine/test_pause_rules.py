"""Rules that pause a worker: nothing starts and nothing leaves until a person resumes it."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from tests.engine.driver import Driven
from tests.engine.support import ORDERS, OTHERS, notes, spent_after
from window_consumer.engine.decisions import Assigned
from window_consumer.engine.guards.interventions import Intervention
from window_consumer.engine.guards.pause_rule import PauseRule, RuleFinding
from window_consumer.engine.retry.failed_record import FailedRecord
from window_consumer.engine.scheduling.batching import BatchRules
from window_consumer.model.errors import Fatal


class PausesAtFailure(PauseRule):
    """Pauses when a call has failed."""

    def __init__(self) -> None:
        self.found: list[int] = []
        self.accepted: list[int] = []

    def failed(self, failed: FailedRecord, now: float) -> None:
        del now
        self.found.append(failed.message.offset())

    def pauses(self, now: float) -> bool:
        del now
        return bool(self.found)

    def findings(self) -> Sequence[RuleFinding]:
        return [RuleFinding("failed", f"offset {each} failed", pauses=True) for each in self.found]

    def accept(self) -> None:
        self.accepted += self.found
        self.found.clear()


class Ruled(Driven):
    """An Engine with such a rule."""

    def __init__(self, **rules: object):
        super().__init__(**rules)  # type: ignore[arg-type] # rules of the Engine
        self.rule = PausesAtFailure()
        self.engine.obey([self.rule])

    def fail_first(self, error: BaseException | None = None) -> None:
        """Let the first record fail, so that the rule pauses the worker."""
        self.deliver(*notes(0, 1, 2))
        self.tick()
        self.fail(self.out[0], 0, error=error)

    def resume(self) -> None:
        self.engine.on_halted(None, self.now, halted=False)


@pytest.mark.parametrize("error", [None, Fatal("bad in itself")])
def test_the_record_that_made_the_rule_pause_does_not_leave(error: BaseException | None) -> None:
    driven = Ruled(slots=1, retry=spent_after(1))
    driven.fail_first(error)
    driven.deliver(*notes(3, 4))
    assert driven.published() == []
    assert driven.published(1000.0) == []
    assert driven.last.dispatch == []
    driven.resume()
    assert [each.message.offset() for each in driven.published()] == [0]
    assert driven.running_offsets == [1, 2, 3, 4]
    assert driven.rule.accepted == [0]


def test_retries_wait_and_running_calls_are_committed() -> None:
    driven = Ruled(retry=spent_after(3), commit_interval_s=0.1, cell_records=1)
    driven.deliver(*notes(0))
    driven.tick()
    driven.deliver(*notes(1))
    driven.tick()
    first, second = driven.out
    driven.claim(first)
    driven.fail(second, 1)
    driven.tick()
    driven.finish(first)
    assert [each.next_offset for each in driven.tick(1000.0).commit] == [1]
    assert driven.out == []
    driven.resume()
    driven.tick()
    assert driven.running_offsets == [1]


def test_a_user_can_still_send_a_record_away() -> None:
    driven = Ruled(slots=1, retry=spent_after(1))
    driven.deliver(*notes(0, 1))
    driven.tick()
    for slice_ in list(driven.out):
        driven.fail(slice_, 0, 1)
    driven.tick()
    driven.engine.on_intervention(ORDERS, 1, Intervention.DEAD_LETTER, driven.now)
    assert [each.message.offset() for each in driven.published()] == [1]


def test_resuming_one_partition_accepts_nothing() -> None:
    driven = Ruled(retry=spent_after(1))
    driven.fail_first()
    driven.tick()
    driven.engine.on_halted(ORDERS, driven.now, halted=False)
    assert driven.published() == []
    assert driven.rule.accepted == []


def test_what_is_assigned_meanwhile_is_paused_too() -> None:
    driven = Ruled(retry=spent_after(1))
    driven.fail_first()
    driven.tick()
    driven.engine.on_assigned([Assigned(OTHERS, 0, committed=(0, ""))], driven.now)
    driven.deliver(*notes(0), name=OTHERS)
    assert driven.tick().dispatch == []


def test_a_failed_batch_waits_whole() -> None:
    driven = Ruled(batch=BatchRules(max_records=3, max_wait_s=0.0), retry=spent_after(1))
    driven.deliver(*notes(0, 1, 2))
    driven.tick()
    driven.fail(driven.out[0], 0, 1, 2)
    driven.deliver(*notes(3, 4, 5))
    assert driven.published(10.0) == []
    assert driven.last.dispatch == []
    driven.resume()
    assert len(driven.published()) == 3


def test_the_snapshot_has_the_findings_until_they_are_accepted() -> None:
    driven = Ruled(retry=spent_after(1))
    driven.fail_first()
    driven.tick()
    seen = driven.snapshot()
    assert (seen.halted, [each.kind for each in seen.findings]) == (True, ["failed"])
    driven.resume()
    seen = driven.snapshot()
    assert (seen.halted, seen.findings) == (False, ())
