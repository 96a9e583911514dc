"""Whether the simulator notices a record that at most once calls twice, or too early."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

import pytest

from tests.simulation.planted import Planted
from tests.simulation.schedules import at_most_once
from window_consumer.engine.commits.at_most_once import AtMostOnce
from window_consumer.engine.engine import Engine
from window_consumer.engine.partition import Partition
from window_consumer.engine.scheduling.slices import Slice
from window_consumer.simulator.simulator import simulate
from window_consumer.simulator.system_under_test import SystemUnderTest

SEEDS = 3000
HONEST_SEEDS = 60
FIXED = (92, 221)
"""A process that died on a record was given it again; a revocation broke the shares of classes."""


def test_nothing_is_called_twice_or_before_its_commit() -> None:
    for seed in (*range(HONEST_SEEDS), *FIXED):
        simulate(seed, draw=at_most_once)


class ForgetsEarlierRanges(AtMostOnce):
    """A commit leaves out what an earlier assignment had finished and was not delivered again."""

    def progress(self, partition: Partition) -> tuple[int, Iterator[range]]:
        next_offset, ranges = super().progress(partition)
        delivered = partition.window.offsets.next_offset
        return next_offset, (each for each in ranges if each.start < delivered)


class StartsWhileTheCommitIsOnItsWay(AtMostOnce):
    """A slice starts when its commit is sent."""

    def starting(self, slices: list[Slice]) -> list[Slice]:
        ready = super().starting(slices)
        return ready + [each for each in slices if each not in ready]


@pytest.mark.parametrize(
    ("mutant", "expected"),
    [
        (ForgetsEarlierRanges, "forgets|second time"),
        (StartsWhileTheCommitIsOnItsWay, "before it is committed"),
    ],
    ids=lambda value: getattr(value, "__name__", ""),
)
def test_a_bug_in_at_most_once_is_found(
    planted: Planted, mutant: type[AtMostOnce], expected: str
) -> None:
    subject = SystemUnderTest(make_engine=partial(Engine, make_guarantee=mutant))
    planted.expect(mutant, subject, expected, SEEDS, at_most_once)
