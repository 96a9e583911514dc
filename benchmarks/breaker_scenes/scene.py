"""A variant of a scene: its records, worker and service, and how it is judged."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from random import Random
from typing import Any, NamedTuple

from attrs import field, frozen

from benchmarks.breaker_scenes.course import Course
from benchmarks.breaker_scenes.services import Service
from benchmarks.workloads import Ordering

_SEED = 32

Figures = dict[str, float]


class Written(NamedTuple):
    """A record of the traffic."""

    at_s: float
    number: int
    key: int


@frozen
class Burst:
    """Records that are written at once; their numbers follow those of all others."""

    at_s: float
    records: int
    one_partition: bool = False
    """They have keys of partition 0."""


@frozen
class Traffic:
    """The records: a backlog at the start, then live ones, and a burst among them."""

    partitions: int
    keys: int
    """A multiple of ``partitions``: a key's rest is its partition."""
    backlog: int = 0
    rate_per_s: float = 0.0
    until_s: float = 0.0
    """How long records are written at this rate."""
    burst: Burst | None = None

    @property
    def usual(self) -> int:
        """The number of records without the burst."""
        return self.backlog + round(self.rate_per_s * self.until_s)

    @property
    def burst_numbers(self) -> range:
        """The numbers of the burst's records."""
        return range(self.usual, self.usual + (self.burst.records if self.burst else 0))

    def records(self) -> list[Written]:
        """Return all records in the order in which they are written; the same ones every time."""
        drawn = Random(_SEED)
        found = [Written(0.0, number, drawn.randrange(self.keys)) for number in range(self.backlog)]
        found += (
            Written((number - self.backlog) / self.rate_per_s, number, drawn.randrange(self.keys))
            for number in range(self.backlog, self.usual)
        )
        found += self._burst(drawn)
        return sorted(found, key=lambda each: each.at_s)

    def _burst(self, drawn: Random) -> Iterator[Written]:
        if self.burst is not None:
            step = self.partitions if self.burst.one_partition else 1
            for number in self.burst_numbers:
                yield Written(self.burst.at_s, number, drawn.randrange(0, self.keys, step))


Judge = Callable[["Scene", Course, Course | None], Figures]
"""Gets the scene, its course, and its course with the breaker switched off."""


@frozen
class Scene:
    """One variant of a scene. Durations are seconds since its start."""

    name: str
    traffic: Traffic
    service: Callable[[], Service]
    judge: Judge
    figures: tuple[str, ...]
    """The names of the figures with a bound that ``judge`` returns."""
    lasts_s: float
    """When it ends, unless all records were finished before."""
    compared: bool = False
    """The same runs beside it with the breaker switched off."""
    slots: int = 16
    ordering: Ordering = "unordered"
    attempts: int = 3
    levels: tuple[str, ...] = ()
    batch: int = 0
    """The most records in a list for the handler; 0: one record per call."""
    window: tuple[int, int] = (32, 500)
    """Cells, and records of a cell."""
    breaker: Mapping[str, Any] = field(factory=dict)
    """Keys of the worker's ``breaker`` section that differ from the defaults."""

    def worker(self) -> dict[str, Any]:
        """Return the worker's keys in the configuration."""
        cells, cell_records = self.window
        return {
            "retry": {
                "attempts": self.attempts,
                "when_spent": "dead_letter",
                "on_failure": "overtake",
                "levels": list(self.levels),
            },
            "window": {"cells": cells, "cell_records": cell_records},
            "breaker": dict(self.breaker),
        }

    def stated(self) -> dict[str, Any]:
        """Return the conditions that a reader of the figures must know."""
        traffic = self.traffic
        burst = traffic.burst
        return {
            "slots": self.slots,
            "attempts": self.attempts,
            "levels": list(self.levels),
            "ordering": self.ordering,
            "keys": traffic.keys,
            "partitions": traffic.partitions,
            "window": f"{self.window[0]} x {self.window[1]} records of each partition",
            "backlog": traffic.backlog,
            "live_per_s": traffic.rate_per_s,
            "burst": f"{burst.records} records after {burst.at_s:g} s" if burst else None,
            "batch": self.batch,
            "breaker": dict(self.breaker),
            "service": repr(self.service())[:200],
        }
