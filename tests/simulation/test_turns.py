"""Records that a rule holds, finishes or lets leave at their turn, in thousands of schedules."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any

import pytest

from tests.simulation.planted import Planted
from tests.simulation.schedules import turned, turned_in_lanes
from window_consumer.engine.engine import Engine
from window_consumer.engine.ownership.epochs import Epochs
from window_consumer.engine.partition import Partition
from window_consumer.engine.retry.turn_decisions import TurnDecisions
from window_consumer.engine.scheduling.lanes import Lane, LaneHold
from window_consumer.engine.scheduling.record_queue import RecordRun
from window_consumer.engine.scheduling.turn_ordering import TurnOrdering
from window_consumer.engine.turn import Finish, HoldUntil, Turn, Turns
from window_consumer.model.record import Message
from window_consumer.simulator.simulator import Draw, ViolationError, simulate
from window_consumer.simulator.system_under_test import SystemUnderTest

SCHEDULES = 20
MUTANTS_SEEDS = 600


@pytest.mark.parametrize("draw", [turned, turned_in_lanes])
def test_every_promise_is_kept_where_rules_decide_about_turns(draw: Draw) -> None:
    broken = []
    for seed in range(SCHEDULES):
        try:
            simulate(seed, draw=draw)
        except ViolationError as violation:
            broken.append(str(violation))
    assert not broken, "\n".join(broken[:3])


class _Engine(Engine):
    """One whose parts are replaced by those of a subclass."""

    ordering_type: type[TurnOrdering] = TurnOrdering
    decisions_type: type[TurnDecisions] = TurnDecisions
    turns_type: type[Turns] = Turns

    def __init__(self, *arguments: Any):
        super().__init__(*arguments)
        self.turn_decisions.__class__ = self.decisions_type
        self.turns = self.turn_decisions.turns = self.turns_type(self.turns.rules)
        ordering_type = self.ordering_type

        class PlantedEpochs(Epochs):
            def ask_turns(self, partition: Partition) -> None:
                super().ask_turns(partition)
                asked = partition.ordering
                if not isinstance(asked, TurnOrdering):
                    asked = asked.unpaced
                asked.__class__ = ordering_type

        self.epochs.turns = self.turns
        self.epochs.__class__ = PlantedEpochs


class DecidesBehindARunningRecord(_Engine):
    """A record is decided about although an earlier one of its lane is in the same slice."""

    class ordering_type(TurnOrdering):  # noqa: N801 - takes the place of an attribute
        def _ask(self, run: RecordRun, hold: LaneHold, own: Collection[Lane]) -> RecordRun | None:
            lane_of, self.lane_of = self.lane_of, None
            try:
                return super()._ask(run, hold, own)
            finally:
                self.lane_of = lane_of


class LosesWhatIsDecided(_Engine):
    """Nothing follows a decision."""

    class decisions_type(TurnDecisions):  # noqa: N801 - takes the place of an attribute
        def carry_out(self, now: float) -> None:
            self.turns.decided.clear()
            super().carry_out(now)


class KeepsLanesOfFinishedRecords(_Engine):
    """The lane of a record that is decided about is never free again."""

    class decisions_type(TurnDecisions):  # noqa: N801 - takes the place of an attribute
        def carry_out(self, now: float) -> None:
            self.turns.holds.clear()
            super().carry_out(now)


class CallsHeldRecordsAtOnce(_Engine):
    """A record that is to be held is called at once."""

    class turns_type(Turns):  # noqa: N801 - takes the place of an attribute
        def of(self, partition: Partition, messages: Sequence[Message]) -> Mapping[int, Turn]:
            found = super().of(partition, messages)
            return {at: each for at, each in found.items() if not isinstance(each, HoldUntil)}


class CallsFinishedRecords(_Engine):
    """A record that is finished at its turn is called all the same."""

    class turns_type(Turns):  # noqa: N801 - takes the place of an attribute
        def of(self, partition: Partition, messages: Sequence[Message]) -> Mapping[int, Turn]:
            found = super().of(partition, messages)
            return {at: each for at, each in found.items() if not isinstance(each, Finish)}


class DropsThoseBehind(_Engine):
    """Records behind one that is decided about are lost."""

    class ordering_type(TurnOrdering):  # noqa: N801 - takes the place of an attribute
        def _ask(self, run: RecordRun, hold: LaneHold, own: Collection[Lane]) -> RecordRun | None:
            honest = self._inner.put_back
            self._inner.put_back = lambda *_: None  # type: ignore[method-assign] # a planted bug
            try:
                return super()._ask(run, hold, own)
            finally:
                self._inner.put_back = honest  # type: ignore[method-assign] # as above


@pytest.mark.parametrize(
    ("mutant", "draw", "expected"),
    [
        (DecidesBehindARunningRecord, turned_in_lanes, "of lane"),
        (LosesWhatIsDecided, turned, "not finished after"),
        (KeepsLanesOfFinishedRecords, turned_in_lanes, "not finished after"),
        (CallsHeldRecordsAtOnce, turned, "before its time"),
        (CallsFinishedRecords, turned, "ends at its turn"),
        (DropsThoseBehind, turned_in_lanes, "not finished after|of lane"),
    ],
    ids=lambda value: getattr(value, "__name__", ""),
)
def test_a_bug_planted_in_what_follows_a_decision_is_found(
    planted: Planted, mutant: type[Engine], draw: Draw, expected: str
) -> None:
    planted.expect(mutant, SystemUnderTest(make_engine=mutant), expected, MUTANTS_SEEDS, draw)
