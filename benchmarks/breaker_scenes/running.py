"""Runs the scenes, several at a time, and joins their figures: the worst of all variants."""

from __future__ import annotations

import time
import uuid
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor, as_completed
from typing import Any, Final

from attrs import asdict, evolve

from benchmarks import children, poison
from benchmarks.breaker_scenes.catalog import SCENES
from benchmarks.breaker_scenes.playing import group_of, off
from benchmarks.breaker_scenes.scene import Scene
from benchmarks.results import Run
from benchmarks.topics import Say, Topics
from benchmarks.workloads import WORKLOADS, Workload
from window_consumer.model.errors import UsageError

AT_ONCE: Final = 5
"""Scenes that run at the same time: their handlers sleep, and two cores suffice."""

SCATTER: Final = "scatter"
SCATTERED: Final = {
    f"{SCATTER}-{each.name}": each for each in poison.SCENES if each.traffic or not each.levels
}
"""Scenes of ``poison``, which compares percentiles: they run alone."""

_SCATTER_RATIO = "scatter_p99_ratio"

Answer = Mapping[str, Any]


def chosen(only: str) -> list[str]:
    """Return the names of the variants that contain a text."""
    return [name for name in (*SCENES, *SCATTERED) if only in name]


def narrowed(workload: Workload, only: str) -> Workload:
    """Return the workload with only these variants, and the floors of their figures."""
    names = chosen(only)
    if not names:
        raise UsageError(f"no scene has {only!r} in its name; there are:\n{' '.join(chosen(''))}")
    figures = {
        figure
        for name in names
        for figure in (SCENES[name].figures if name in SCENES else (_SCATTER_RATIO,))
    }
    floors = tuple(floor for floor in workload.floors if floor.ratio in figures)
    return evolve(workload, only=only, floors=floors)


def run_scenes(topics: Topics, workload: Workload, say: Say) -> Run:
    """Run the variants that the workload names; return the worst of each figure."""
    names = chosen(workload.only)
    began = time.perf_counter()
    answers: dict[str, Answer] = {}
    played = [name for name in names if name in SCENES]
    with ThreadPoolExecutor(AT_ONCE, thread_name_prefix="scene") as pool:
        futures = {pool.submit(_play, topics, SCENES[name]): name for name in played}
        for future in as_completed(futures):
            name = futures[future]
            answers[name] = future.result()
            say(_line(name, answers[name]))
    for name in names:
        if name in SCATTERED:
            answers[name] = _scatter(topics, SCATTERED[name])
            say(_line(name, answers[name]))
    return joined(workload, answers, time.perf_counter() - began)


def joined(workload: Workload, answers: Mapping[str, Answer], seconds: float) -> Run:
    """Return all answers as one run."""
    at_most = {floor.ratio for floor in workload.floors if floor.at_most}
    floors = {floor.ratio for floor in workload.floors}
    worst: dict[str, tuple[float, str]] = {}
    for name, answer in answers.items():
        for figure, value in answer["figures"].items():
            if figure in floors:
                pick = max if figure in at_most else min
                worst[figure] = pick(worst.get(figure, (value, name)), (value, name))
    done = sum(answer["seen"].get("healthy_done", 0) for answer in answers.values())
    return Run(
        done / seconds,
        sum(answer["cpu_s"] for answer in answers.values()),
        max(answer["max_rss_mb"] for answer in answers.values()),
        lost=sum(answer["lost"] for answer in answers.values()),
        duplicates=sum(answer["duplicates"] for answer in answers.values()),
        order_violations=sum(answer["order_violations"] for answer in answers.values()),
        notes={figure: float(value) for figure, (value, _) in worst.items()},
        variants={name: dict(answer) for name, answer in answers.items()},
        worst={figure: name for figure, (_, name) in worst.items()},
    )


def _play(topics: Topics, scene: Scene) -> Answer:
    """Play a scene in a child process, with topics that exist only for it."""
    topic = f"wc-scene-{uuid.uuid4().hex[:8]}"
    names = [topic, off(topic)] if scene.compared else [topic]
    for name in names:
        topics.make(name, scene.traffic.partitions)
    try:
        found: Answer = children.run(
            "breaker_scene", bootstrap=topics.bootstrap, topic=topic, name=scene.name
        )
    finally:
        for name in names:
            topics.delete(name)
            topics.delete_copies(group_of(name))
            topics.forget(group_of(name))
    return found


def _scatter(topics: Topics, scene: poison.Scene) -> Answer:
    """Run a scene of ``poison``."""
    workload = WORKLOADS["poison"]
    topic = f"wc-scene-{uuid.uuid4().hex[:8]}"
    names = (topic, poison.alone(topic))
    for name in names:
        topics.make(name)
    try:
        found = children.run(
            "poison",
            bootstrap=topics.bootstrap,
            topic=topic,
            group=group_of(topic),
            workload=workload,
            counts=[workload.topic.records // 4] * 4,
            scene=asdict(scene),
        )
    finally:
        for name in names:
            topics.delete(name)
        topics.delete_copies(group_of(topic))
    return {
        **{name: found[name] for name in ("lost", "duplicates", "order_violations")},
        **{name: found[name] for name in ("cpu_s", "max_rss_mb")},
        "figures": {_SCATTER_RATIO: found["ratios"][scene.name]},
        "stated": {
            "slots": workload.slots,
            "attempts": 2 if scene.levels else 3,
            "levels": list(poison.LEVELS) if scene.levels else [],
            "ordering": workload.ordering,
            "keys": workload.topic.records,
            "partitions": 4,
            "window": "32 x 500 records of each partition",
            "backlog": 0 if scene.traffic else workload.topic.records,
            "live_per_s": poison.RATE_PER_S if scene.traffic else 0,
        },
        "seen": found["notes"],
    }


def _line(name: str, answer: Answer) -> str:
    def parts() -> Iterator[str]:
        yield from (f"{figure} {value:.3g}" for figure, value in answer["figures"].items())
        for problem in ("lost", "duplicates", "order_violations"):
            if answer[problem]:
                yield f"{problem.upper()} {answer[problem]}"

    return f"{name}: {', '.join(parts())}"
