"""Scenes of the circuit breaker, rehearsed: the same guarantees as on a real Kafka."""

from __future__ import annotations

from typing import Any

import pytest

from benchmarks.breaker_scenes.catalog import SCENES
from benchmarks.breaker_scenes.rehearsing import Rehearsal, rehearse
from benchmarks.workloads import WORKLOADS

REHEARSED = [
    "batch-tenth-1",
    "end-30-1p-key",
    "flap-fast-2-often",
    "flap-slow-3-often",
    "outage-batches-of-1000",
    "outage-key-fast-1",
    "outage-live-local",
    "outage-unordered-slow-3",
    "overload-backlog-ends-unordered-slow",
    "overload-backlog-key-fast",
    "overload-live-key-fast",
    "overload-live-key-slow",
    "overload-live-unordered-fast",
    "retries-backlog-key",
    "retries-live-unordered",
    "shard-key",
    "stretch-300-1p-key-5ms",
    "stretch-300-4p-key-50ms",
    "stretch-300-4p-unordered-500ms",
    "stretch-3000-4p-unordered-50ms",
    "outage-after-stretch-unordered-0.5s",
]


def missed(name: str, figures: dict[str, float]) -> dict[str, float]:
    """Return the figures of a scene that miss their bound."""
    floors = {floor.ratio: floor for floor in WORKLOADS["breaker-scenes"].floors}
    return {
        figure: figures[figure]
        for figure in SCENES[name].figures
        if not floors[figure].holds(figures[figure])
    }


@pytest.mark.parametrize("name", REHEARSED)
def test_a_rehearsed_scene_keeps_its_bounds(name: str) -> None:
    figures = rehearse(SCENES[name])
    assert set(SCENES[name].figures) <= set(figures)
    assert missed(name, figures) == {}


@pytest.mark.parametrize(
    ("name", "breaker"),
    [
        ("flap-fast-2-often", {"enabled": False}),
        ("outage-key-fast-1", {"enabled": False}),
        ("overload-live-unordered-fast", {"enabled": False}),
        ("end-30-1p-key", {"max_hold_s": 600.0}),
    ],
)
def test_bounds_are_missed_with_other_rules(name: str, breaker: dict[str, Any]) -> None:
    scene = SCENES[name]
    assert missed(name, scene.judge(scene, Rehearsal.of(scene, **breaker).play(), None))


def test_a_rehearsal_keeps_the_order_of_keys_and_calls_nothing_twice() -> None:
    course = Rehearsal.of(SCENES["overload-backlog-ends-key-slow"]).play()
    assert course.order_violations() == 0
    assert course.repeated() == 0
    assert len(course.done_s) == len(course.written_s)
