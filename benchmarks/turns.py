"""``python -m benchmarks turns``: this checkout and another one, run in turns."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Protocol

import cattrs
import click
from attrs import frozen

from benchmarks import children
from benchmarks.broker import kafka_at
from benchmarks.results import Run, Spread
from benchmarks.runs import Bench
from benchmarks.topics import Topics
from benchmarks.workloads import WORKLOADS, Workload
from window_consumer.config.problems import did_you_mean
from window_consumer.model.errors import UsageError

WORKS = frozenset({"noop", "wait", "failing", "dying", "climbing", "computing"})
"""Kinds of work whose runs are one process on a filled topic."""
LARGEST_LOSS = 0.02
"""A change may make the median of a workload slower by as much."""


class Runs(Protocol):
    """Whatever runs a workload in one checkout."""

    def run(self) -> Run:
        """Run it once."""


@frozen
class Turn:
    """Three runs, one after the other. The order of them alternates from turn to turn."""

    here: Run
    there: Run
    there_again: Run
    """The same code once more: what it differs by is noise."""


@frozen
class Turns:
    """A workload in turns: records/s of this checkout through the other one's."""

    workload: str
    turns: tuple[Turn, ...]

    @property
    def ratio(self) -> Spread:
        """This checkout through the mean of the other's two runs, turn by turn."""
        return Spread(
            tuple(
                2
                * each.here.records_per_s
                / (each.there.records_per_s + each.there_again.records_per_s)
                for each in self.turns
            )
        )

    @property
    def noise(self) -> Spread:
        """The other checkout through itself."""
        return Spread(
            tuple(each.there_again.records_per_s / each.there.records_per_s for each in self.turns)
        )

    @property
    def cpu_ratio(self) -> Spread:
        """Processor time of this checkout through the mean of the other's two runs."""
        return Spread(
            tuple(
                2 * each.here.cpu_s / (each.there.cpu_s + each.there_again.cpu_s)
                for each in self.turns
            )
        )

    @property
    def is_slower(self) -> bool:
        """Whether the median lost more than it may."""
        return self.ratio.median < 1 - LARGEST_LOSS

    def as_text(self) -> str:
        """Return a line about the figures."""
        ratio, noise, cpu = (
            f"{each.median:.3f} ({min(each.values):.3f} to {max(each.values):.3f})"
            for each in (self.ratio, self.noise, self.cpu_ratio)
        )
        return (
            f"{self.workload}: {ratio} of the other's records/s; the other beside itself {noise};"
            f" processor time {cpu} of the other's"
        )

    def as_json(self) -> dict[str, Any]:
        """Return the figures of a report."""
        return {
            "ratios": {
                "turns": self.ratio.median,
                "noise": self.noise.median,
                "cpu": self.cpu_ratio.median,
            },
            "turns": cattrs.unstructure(self.turns),
        }


def take_turns(workload: str, rounds: int, here: Runs, there: Runs) -> Turns:
    """Run a workload in both checkouts, three runs a turn, after one run that does not count."""
    here.run()
    turns = []
    for number in range(rounds):
        sides = [here, there, there]
        if number % 2:
            runs = [side.run() for side in reversed(sides)][::-1]
        else:
            runs = [side.run() for side in sides]
        turns.append(Turn(*runs))
    return Turns(workload, tuple(turns))


@click.command("turns")
@click.argument("other", type=click.Path(exists=True, file_okay=False, path_type=Path))
@click.argument("names", nargs=-1, required=True, metavar="NAME...")
@click.option("--rounds", type=click.IntRange(1), default=10, show_default=True)
@click.option("--kafka", metavar="HOST:PORT", help="A Kafka to use. [default: one is started]")
@click.option(
    "--json",
    "json_file",
    type=click.Path(dir_okay=False, path_type=Path),
    help="Write the report into this file.",
)
def turns_command(
    other: Path, names: Sequence[str], rounds: int, kafka: str | None, json_file: Path | None
) -> int:
    """Run workloads in turns with OTHER, a checkout of another commit (`git worktree add`).

    The exit code is 1 when the median of one is slower by more than 2 %.
    """
    if not (other / "benchmarks" / "child.py").is_file():
        raise UsageError(f"{other} is not a checkout of this project: no benchmarks/child.py")
    workloads = [_checked(name) for name in names]
    found = []
    with kafka_at(kafka, _report) as (bootstrap, _):
        topics = Topics(bootstrap)
        for workload in workloads:
            here, there = (
                Bench(workload, topics, _report, checkout)
                for checkout in (children.CHECKOUT, other.resolve())
            )
            turns = take_turns(workload.name, rounds, here, there)
            click.echo(turns.as_text())
            found.append(turns)
    if json_file is not None:
        report = {each.workload: each.as_json() for each in found}
        json_file.write_text(json.dumps(report, indent=2) + "\n")
    return int(any(each.is_slower for each in found))


def _checked(name: str) -> Workload:
    if name not in WORKLOADS:
        raise UsageError(f"there is no workload {name!r} {did_you_mean(name, WORKLOADS)}".rstrip())
    if WORKLOADS[name].work not in WORKS:
        fit = ", ".join(each.name for each in WORKLOADS.values() if each.work in WORKS)
        raise UsageError(f"{name} starts more than one process: turns take {fit}")
    return WORKLOADS[name]


def _report(text: str) -> None:
    click.echo(text, err=True)
