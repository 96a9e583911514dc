"""Whatever happens, lanes are busy for as long as somebody holds them, and no longer."""

from __future__ import annotations

from collections import Counter

import pytest

from window_consumer.engine.decisions import Decisions
from window_consumer.engine.engine import Engine
from window_consumer.engine.partition import Partition
from window_consumer.engine.retry.completion import Completion
from window_consumer.engine.scheduling.lanes import Lanes
from window_consumer.engine.scheduling.slices import Slice
from window_consumer.simulator.simulator import simulate
from window_consumer.simulator.system_under_test import SystemUnderTest

SCHEDULES = 60


class Checked(Engine):
    """An Engine whose lanes are counted after each tick."""

    def on_tick(self, now: float, wall_ms: float) -> Decisions:
        decisions = super().on_tick(now, wall_ms)
        for partition in self.partitions.values():
            lanes = partition.ordering.lanes
            check(lanes)
            if all(self._is_idle(each) for each in (partition, *partition.siblings)):
                # Calls that outlived an earlier assignment keep their lanes until they end.
                outlived = {lane for each in self.outlived.calls for lane in each.held}
                held = lanes.busy - outlived
                assert not held, f"{partition.name} is idle and holds {held}"
                # One for each ordering with a rate, which keeps that of records set aside.
                assert len(lanes.holds) <= len(lanes.members)
        return decisions

    def _is_idle(self, partition: Partition) -> bool:
        return (
            partition.idle
            and not self.work.is_busy(partition)
            and not self.dispatcher.slices_of(partition)
        )


def check(lanes: Lanes) -> None:
    """Compare what is known of each lane with the holds that there are."""
    held = Counter(lane for hold in lanes.holds for lane in set(hold.lanes) if lane is not None)
    offered = [lane for each in lanes.members for lane in each.ready]
    assert lanes.busy == set(held) | set(offered)
    assert len(offered) == len(set(offered))
    assert not any(lane in held for lane in offered)
    assert lanes.further == {lane: count - 1 for lane, count in held.items() if count > 1}


class _NeverReleases(Completion):
    def complete(self, slice_: Slice, now: float) -> None:
        lanes = list(slice_.hold.lanes)
        super().complete(slice_, now)
        slice_.partition.ordering.acquire(lanes[:1])


class LosesAHold(Checked):
    """What a slice held stays busy for ever."""

    def __init__(self, *arguments: object):
        super().__init__(*arguments)  # type: ignore[arg-type] # those of an Engine
        self.completion.__class__ = _NeverReleases


def run(make_engine: type[Engine]) -> None:
    for seed in range(SCHEDULES):
        simulate(seed, subject=SystemUnderTest(make_engine=make_engine))


def test_lanes_are_busy_exactly_while_somebody_holds_them() -> None:
    run(Checked)


def test_a_hold_that_nobody_releases_is_found() -> None:
    with pytest.raises(AssertionError):
        run(LosesAHold)
