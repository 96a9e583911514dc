"""A member that does not hear what it was dealt: noticed, and only where it is certain."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import pairwise
from types import SimpleNamespace
from typing import Any

import pytest

from window_consumer.kafka.watchdogs import assignment as group_watch
from window_consumer.kafka.watchdogs.assignment import AssignmentWatchdog
from window_consumer.model.record import TopicPartition

ME = "me"


class Coordinator:
    """Answers when it is told to, and counts the questions."""

    def __init__(self) -> None:
        self.now = 1000.0
        self.lines = 0
        self.dealt: set[int] = {0, 1}
        self.target: set[int] | None = None
        self.held: set[int] = {0, 1}
        self.questions: list[float] = []
        self.member = ME
        self.refuses = False
        self.silent = False
        self.is_well = True
        self.watch = AssignmentWatchdog(
            self._ask, lambda: self.is_well, lambda: self.lines, lambda: self.now
        )

    def _ask(self) -> Coordinator:
        self.questions.append(self.now)
        return self

    def done(self) -> bool:
        return not self.silent

    def answer(self) -> Any:
        if self.refuses:
            return None
        mine = SimpleNamespace(
            member_id=self.member,
            assignment=SimpleNamespace(topic_partitions=names(self.dealt)),
            target_assignment=None
            if self.target is None
            else SimpleNamespace(topic_partitions=names(self.target)),
        )
        return SimpleNamespace(members=[SimpleNamespace(member_id="other", assignment=None), mine])

    def pass_time(self, seconds: float) -> list[float]:
        """Poll ten times a second; return when the watch said that the member is deaf."""
        said = []
        for _ in range(round(seconds * 10)):
            self.now += 0.1
            if self.watch.is_deaf(lambda: ME, lambda: names(self.held)):
                said.append(self.now)
        return said


def names(partitions: Iterable[int]) -> list[TopicPartition]:
    return [TopicPartition("orders", each) for each in partitions]


@pytest.fixture
def coordinator() -> Coordinator:
    return Coordinator()


def test_without_a_line_in_the_log_the_coordinator_is_hardly_asked(
    coordinator: Coordinator,
) -> None:
    assert coordinator.pass_time(3 * group_watch.CALM_S) == []
    assert len(coordinator.questions) == 2


def test_an_assignment_that_was_lost_is_noticed(coordinator: Coordinator) -> None:
    coordinator.lines += 1
    coordinator.dealt = {0, 1, 2}
    (said,) = coordinator.pass_time(25.0)
    first = coordinator.questions[0]
    assert group_watch.SURE_S <= said - first < group_watch.SURE_S + 2 * group_watch.ASK_S


def test_a_revocation_that_was_lost_is_noticed(coordinator: Coordinator) -> None:
    coordinator.lines += 1
    coordinator.dealt = {0}
    assert len(coordinator.pass_time(25.0)) == 1


def test_so_is_one_that_the_coordinator_waits_for(coordinator: Coordinator) -> None:
    coordinator.lines += 1
    coordinator.target = {0}
    assert len(coordinator.pass_time(25.0)) == 1


def test_a_member_that_waits_for_another_is_not_deaf(coordinator: Coordinator) -> None:
    coordinator.lines += 1
    coordinator.target = {0, 1, 2, 3}
    assert coordinator.pass_time(100.0) == []


def test_it_is_noticed_in_the_end_where_nothing_was_logged(coordinator: Coordinator) -> None:
    coordinator.dealt = {0, 1, 2}
    assert len(coordinator.pass_time(group_watch.CALM_S + 25.0)) == 1


def test_what_is_on_its_way_is_waited_for(coordinator: Coordinator) -> None:
    coordinator.lines += 1
    for partition in range(2, 8):
        # A rebalance in steps: each differs for a while, and then it has arrived.
        coordinator.dealt = coordinator.dealt | {partition}
        assert coordinator.pass_time(group_watch.SURE_S - 2 * group_watch.CHECK_S) == []
        coordinator.held = set(coordinator.dealt)
        assert coordinator.pass_time(group_watch.ASK_S + 2 * group_watch.CHECK_S) == []


def test_steps_that_follow_each_other_are_not_taken_for_one(coordinator: Coordinator) -> None:
    coordinator.lines += 1
    for partition in range(2, 10):
        coordinator.held = set(coordinator.dealt)
        coordinator.dealt = coordinator.dealt | {partition}
        assert coordinator.pass_time(group_watch.SURE_S - 2 * group_watch.CHECK_S) == []


@pytest.mark.parametrize("trouble", ["refused", "not listed", "no answer"])
def test_a_coordinator_that_does_not_say_is_no_reason(
    coordinator: Coordinator, trouble: str
) -> None:
    coordinator.lines += 1
    coordinator.dealt = {0}
    coordinator.refuses = trouble == "refused"
    coordinator.member = "somebody else" if trouble == "not listed" else ME
    coordinator.silent = trouble == "no answer"
    assert coordinator.pass_time(100.0) == []


def test_a_coordinator_that_is_not_well_is_not_asked(coordinator: Coordinator) -> None:
    coordinator.dealt = {0}
    coordinator.is_well = False
    for _ in range(10):
        coordinator.lines += 1
        assert coordinator.pass_time(10.0) == []
    assert coordinator.questions == []
    coordinator.is_well = True
    assert len(coordinator.pass_time(25.0)) == 1


def test_a_cure_that_does_not_help_is_tried_ever_more_seldom(coordinator: Coordinator) -> None:
    coordinator.lines += 1
    coordinator.dealt = {0}
    said = coordinator.pass_time(600.0)
    pauses = [later - earlier for earlier, later in pairwise(said)]
    assert len(pauses) >= 3
    assert pauses[0] >= group_watch.GENTLE_S
    assert all(later > 1.8 * earlier for earlier, later in pairwise(pauses))


def test_a_member_that_gets_nothing_is_found_out_though_the_client_says_nothing() -> None:
    coordinator = Coordinator()
    coordinator.dealt = coordinator.held = set()
    coordinator.watch.expect_share()
    assert coordinator.pass_time(group_watch.ASK_S - 1) == []
    assert not coordinator.watch.gets_nothing
    coordinator.pass_time(3)
    assert coordinator.watch.gets_nothing


@pytest.mark.parametrize(
    "what", [{"member": "other than me"}, {"target": {0}}, {"refuses": True}, {"dealt": {1}}]
)
def test_a_member_that_has_not_joined_or_will_get_something_does_not_get_nothing(
    what: dict[str, Any],
) -> None:
    coordinator = Coordinator()
    coordinator.dealt = coordinator.held = set()
    for name, value in what.items():
        setattr(coordinator, name, value)
    coordinator.watch.expect_share()
    coordinator.pass_time(60)
    assert not coordinator.watch.gets_nothing
    # The group may be large, and the right to look at it may be missing: not every 5 s for ever.
    assert 3 <= len(coordinator.questions) <= 12
