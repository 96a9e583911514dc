"""Whatever happens, each failed record is in one place, and no other record is there."""

from __future__ import annotations

from typing import Any

import pytest

from window_consumer.engine.decisions import Decisions
from window_consumer.engine.engine import Engine
from window_consumer.engine.retry.failed_record import FailedRecord
from window_consumer.engine.retry.record_state import RecordState
from window_consumer.simulator.simulator import ViolationError, simulate
from window_consumer.simulator.system_under_test import SystemUnderTest

SCHEDULES = 60


class Checked(Engine):
    """An Engine whose failed records are counted after each tick."""

    def on_tick(self, now: float, wall_ms: float) -> Decisions:
        decisions = super().on_tick(now, wall_ms)
        records = self.failed_records
        known = list(records)
        late = [each for each in records.unacked if not each.partition.accepts_results]
        assert len(known) + len(late) == sum(map(len, records._places.values()))
        for failed in known:
            assert failed in failed.place, failed  # type: ignore[operator] # all that are known have one
            assert failed.partition.window.is_open(failed.seq), failed
        running = {seq for each in self.dispatcher.out for seq in each.again}
        for failed in known:
            if failed.state is RecordState.RUNNING and failed.partition.is_assigned:
                assert failed.seq in running, failed
        return decisions


class LosesAnUnansweredCopy(Checked):
    """A copy that the broker refused is nowhere."""

    def __init__(self, *arguments: Any):
        super().__init__(*arguments)
        honest = self.failed_records.wait

        def wait(failed: FailedRecord, due: float) -> None:
            honest(failed, due)
            if failed.publish_failures:
                failed.place.remove(failed)

        self.failed_records.wait = wait  # type: ignore[method-assign] # a planted bug


def run(make_engine: type[Engine]) -> None:
    for seed in range(SCHEDULES):
        simulate(seed, subject=SystemUnderTest(make_engine=make_engine))


def test_each_failed_record_is_in_the_place_of_its_state() -> None:
    run(Checked)


def test_a_record_that_is_nowhere_is_found() -> None:
    with pytest.raises(ViolationError, match=r"(dies of|stopped by) a bug: AssertionError"):
        run(LosesAnUnansweredCopy)
