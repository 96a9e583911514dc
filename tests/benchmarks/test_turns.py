"""Turns: two checkouts beside each other, and the noise of one beside itself."""

from __future__ import annotations

from pathlib import Path

import pytest
from attrs import frozen
from click.testing import CliRunner

from benchmarks.__main__ import cli
from benchmarks.results import Run
from benchmarks.turns import Turn, Turns, take_turns
from window_consumer.model.errors import UsageError


@frozen
class Recorded:
    """Writes down that it runs."""

    name: str
    ran: list[str]

    def run(self) -> Run:
        self.ran.append(self.name)
        return Run(float(len(self.ran)), cpu_s=1.0)


def test_the_order_of_the_runs_alternates_and_the_first_run_does_not_count() -> None:
    ran: list[str] = []
    turns = take_turns("noop-key", 2, Recorded("here", ran), Recorded("there", ran))
    assert ran == ["here", "here", "there", "there", "there", "there", "here"]
    first, second = turns.turns
    assert [first.here, first.there, first.there_again] == [Run(n, cpu_s=1.0) for n in (2, 3, 4)]
    assert [second.here, second.there, second.there_again] == [Run(n, cpu_s=1.0) for n in (7, 6, 5)]


def turn(here: float, there: float, again: float) -> Turn:
    return Turn(Run(here, cpu_s=2.0), Run(there, cpu_s=1.0), Run(again, cpu_s=3.0))


def test_a_median_that_lost_more_than_two_percent_is_slower() -> None:
    slower = Turns("noop-key", (turn(97, 90, 110), turn(97, 100, 100), turn(500, 100, 100)))
    assert slower.is_slower
    assert slower.as_json()["ratios"] == pytest.approx({"turns": 0.97, "noise": 1.0, "cpu": 1.0})
    assert not Turns("noop-key", (turn(98, 100, 100),)).is_slower


@pytest.mark.parametrize("given", [("nop-key",), ("redrive",)])
def test_a_workload_that_cannot_be_compared_is_refused(given: tuple[str, ...]) -> None:
    answer = CliRunner().invoke(cli, ["turns", str(Path(__file__).parents[2]), *given])
    assert isinstance(answer.exception, UsageError)
    assert given[0] in str(answer.exception)


def test_a_folder_that_is_no_checkout_is_refused(tmp_path: Path) -> None:
    answer = CliRunner().invoke(cli, ["turns", str(tmp_path), "noop-key"])
    assert isinstance(answer.exception, UsageError)
    assert str(tmp_path) in str(answer.exception)
