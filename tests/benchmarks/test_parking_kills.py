"""What the kills of the benchmark of parking count: records that are lost, or called too early."""

from __future__ import annotations

import pytest

from benchmarks.parking_kills import judged
from benchmarks.results import Run
from window_consumer.testing.events import Ended, Event, Killed, Produced, Result, Started


def call(member: str, offset: int, began: float, result: Result = "done") -> list[Event]:
    place = member, "t", 0, offset, "k"
    return [Started(*place, began), Ended(*place, began + 1, result)]


def figures(run: Run) -> tuple[int, int, int]:
    return run.lost, run.order_violations, run.duplicates


@pytest.mark.parametrize(
    ("events", "found"),
    [
        ([*call("a", 0, 0), *call("b", 1, 2)], (0, 0, 0)),
        ([*call("a", 0, 0), *call("b", 0, 2), *call("b", 1, 4)], (0, 0, 1)),
        ([*call("a", 0, 0), *call("a", 1, 2), *call("b", 0, 4), *call("b", 1, 6)], (0, 0, 2)),
        ([*call("a", 0, 0, "failed"), *call("b", 1, 2), *call("b", 0, 4)], (0, 1, 0)),
        ([*call("a", 0, 0), Started("a", "t", 0, 1, "k", 2), Killed("a", 3)], (1, 0, 0)),
        ([*call("a", 0, 0), Started("b", "t", 0, 1, "k", 2), *call("a", 1, 2.5)], (0, 1, 0)),
    ],
    ids=["in order", "again", "a rewind", "before its head", "lost", "at once"],
)
def test_a_rewind_repeats_records_and_breaks_no_order(
    events: list[Event], found: tuple[int, int, int]
) -> None:
    produced = [Produced("t", 0, offset, "k", str(offset)) for offset in range(2)]
    assert figures(judged(produced, events, lambda _: None)) == found
