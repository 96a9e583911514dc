"""Planted bugs: each must break its promise in a schedule that keeps all promises without it."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from pathlib import Path

from attrs import frozen

from window_consumer.simulator.schedule_builder import draw as drawn
from window_consumer.simulator.simulator import Draw, ViolationError, simulate
from window_consumer.simulator.system_under_test import SystemUnderTest

FILE = Path(__file__).with_name("first_seeds.json")
FIRST_SEEDS: dict[str, int] = json.loads(FILE.read_text(encoding="utf-8"))
"""The first schedule that shows each bug."""


@frozen
class Planted:
    """Looks for bugs, first where each was found last."""

    record: Callable[[str], object]
    """Takes a bug that is found by another seed than the recorded one, which costs a search."""
    first_seeds: Mapping[str, int] = FIRST_SEEDS

    def expect(
        self, bug: object, subject: SystemUnderTest, pattern: str, seeds: int, draw: Draw = drawn
    ) -> None:
        """Fail unless a schedule up to `seeds` breaks the promise.

        The schedule that does is run without the bug, too, and has to keep all promises: so honest
        runs have the seeds of all bugs, late ones included.
        """
        name: str = getattr(bug, "__name__", str(bug))
        recorded = self.first_seeds.get(name)
        for seed in (*(() if recorded is None else (recorded,)), *range(seeds)):
            if re.search(pattern, first_violation(seed, subject, draw)):
                break
        else:
            raise AssertionError(f"{name} breaks no such promise in {seeds} schedules")
        simulate(seed, draw=draw)
        if seed != recorded:
            self.record(f'"{name}": {seed}')


def first_violation(seed: int, subject: SystemUnderTest, draw: Draw) -> str:
    """Return the first promise that a schedule breaks, or an empty text."""
    try:
        simulate(seed, subject=subject, draw=draw)
    except ViolationError as violation:
        return violation.violations[0]
    return ""
