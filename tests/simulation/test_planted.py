"""How planted bugs are looked for."""

from __future__ import annotations

import pytest

from tests.simulation.copy_mutants import grows_at_each_hop as bug
from tests.simulation.planted import Planted, first_violation
from window_consumer.simulator.schedule_builder import draw as drawn
from window_consumer.simulator.system_under_test import SystemUnderTest

NAME = bug.__name__
BUGGY = SystemUnderTest(make_copy=bug)
BROKEN = "bytes of headers of ours"


@pytest.fixture(scope="module")
def shown_by() -> int:
    """The first schedule that shows the bug; not the very first."""
    assert not first_violation(0, BUGGY, drawn)
    return next(seed for seed in range(100) if BROKEN in first_violation(seed, BUGGY, drawn))


def test_a_bug_that_its_recorded_schedule_shows_needs_no_search(shown_by: int) -> None:
    to_record: list[str] = []
    Planted(to_record.append, {NAME: shown_by}).expect(bug, BUGGY, BROKEN, seeds=0)
    assert to_record == []


@pytest.mark.parametrize("stale", [{}, {NAME: 0}], ids=["unknown", "stale"])
def test_a_bug_that_is_found_by_another_schedule_is_to_be_recorded(
    shown_by: int, stale: dict[str, int]
) -> None:
    to_record: list[str] = []
    Planted(to_record.append, stale).expect(bug, BUGGY, BROKEN, seeds=shown_by + 1)
    assert to_record == [f'"{NAME}": {shown_by}']


@pytest.mark.parametrize(
    ("subject", "pattern"), [(BUGGY, "no such promise"), (SystemUnderTest(), ".")]
)
def test_a_bug_that_breaks_no_such_promise_fails(
    shown_by: int, subject: SystemUnderTest, pattern: str
) -> None:
    with pytest.raises(AssertionError, match=NAME):
        Planted(print, {}).expect(bug, subject, pattern, seeds=shown_by + 1)
