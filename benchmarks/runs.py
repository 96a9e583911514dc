"""Runs a workload and its baselines in turn, each run in a separate process."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from itertools import count
from pathlib import Path
from typing import Any

import cattrs
from attrs import asdict, evolve, field, frozen

from benchmarks import (
    at_most_once,
    broadcast,
    children,
    delaying,
    delaying_kills,
    delaying_pending,
    delaying_wheel,
    downstream,
    growth,
    once,
    once_kills,
    outbox,
    outbox_kills,
    parking,
    parking_kills,
    pipeline_dlq,
    pipeline_trace,
    poison,
    producing,
    pulling,
    pushing,
    redriving,
    sharing,
    telemetry,
    transactions,
)
from benchmarks.breaker_scenes import running as scenes
from benchmarks.peers import killing
from benchmarks.results import Measured, Run
from benchmarks.topics import Say, Topics
from benchmarks.workloads import PARTITIONS, Baseline, Workload
from window_consumer.model.errors import RunError

_WITH_TOPICS_OF_THEIR_OWN = {
    **pipeline_trace.RUNS,
    **growth.RUNS,
    **producing.RUNS,
    **once.RUNS,
    **once_kills.RUNS,
    **outbox.RUNS,
    **outbox_kills.RUNS,
    **parking.RUNS,
    **delaying.RUNS,
    **delaying_kills.RUNS,
    **delaying_pending.RUNS,
    **delaying_wheel.RUNS,
    **sharing.RUNS,
    **transactions.RUNS,
    **broadcast.RUNS,
    **pulling.RUNS,
    **pushing.RUNS,
    **at_most_once.RUNS,
    **killing.RUNS,
    "dead-letters": pipeline_dlq.run,
}

_KILLED_FIRST = ("redrive", "replay", "park")
"""Work that is killed in an untimed run first."""


def measure(
    workload: Workload, topics: Topics, runs: int, say: Say, *, checked: bool = True
) -> Measured:
    """Run a workload and each of its baselines ``runs`` times, in turn.

    Every other round has the opposite order, so that each follows each equally often: a run starts
    slower after one that left the processor idle.

    If ``checked``, a first, untimed run warms the broker up. For a no-op handler it records every
    call, and for a redrive, a replay or parking it includes kills.
    """
    bench = Bench(workload, topics, say)
    checks = []
    if not checked:
        pass
    elif workload.work in ("noop", "telemetry") or workload.coroutine:
        checks.append(bench.run(checked=True))
        say(f"{workload.name}: a run that notes every call: {_problems(checks[0]) or 'all well'}")
    elif workload.kills and workload.work in _KILLED_FIRST:
        checks.append(bench.run(checked=True))
        found = _problems(checks[0]) or "all well"
        say(f"{workload.name}: a run that is killed {workload.kills} times: {found}")
    ours: list[Run] = []
    theirs: dict[Baseline, list[Run]] = {name: [] for name in workload.baselines}
    for number in range(1, runs + 1):
        said = []
        turns: list[Baseline | None] = [None, *theirs]
        for name in turns if number % 2 else reversed(turns):
            if name is None:
                ours.append(bench.run())
                said.append(_in_words(ours[-1]))
            else:
                theirs[name].append(bench.baseline(name))
                said.append(f"{name}: {_in_words(theirs[name][-1])}")
        say(f"{workload.name}: run {number} of {runs}: {'; '.join(said)}")
    return Measured(workload, ours, theirs, checks)


@frozen
class Bench:
    """Starts the runs of one workload."""

    workload: Workload
    topics: Topics
    say: Say
    checkout: Path = children.CHECKOUT
    """Whose code runs on a filled topic."""
    turns: Iterator[int] = field(factory=count)

    def run(self, *, checked: bool = False) -> Run:
        """Run the framework."""
        if self.workload.work == "stuck":
            return self._stuck(hang=True)
        if self.workload.fails:
            return self._on_filled_topic("ladder", failing=True)
        series: Mapping[str, Callable[[], Run]] = {
            "crowding": self._crowding,
            "poison": self._poison,
            "breaker-scenes": self._scenes,
            "park": partial(self._park, kill=checked),
            "redrive": partial(self._redrive, kill=checked),
            "replay": partial(self._replay, kill=checked),
        }
        if self.workload.work in series:
            return series[self.workload.work]()
        if self.workload.work in _WITH_TOPICS_OF_THEIR_OWN:
            return _WITH_TOPICS_OF_THEIR_OWN[self.workload.work](self.topics, self.workload)
        return self._plain(checked=checked)

    def _plain(self, *, checked: bool) -> Run:
        """Run to the end of a topic, with each kind of telemetry if requested."""
        if self.workload.work == "page":
            return cattrs.structure(children.run("page"), Run)
        if self.workload.work == "audit":
            found = children.run("audit_counts", records=self.workload.topic.records)
            return cattrs.structure(found, Run)
        if self.workload.work == "backfill":
            return self._backfill()
        if self.workload.work == "outage":
            return self._on_filled_topic("outage")
        if self.workload.work == "telemetry" and not checked:
            return self._with_telemetry()
        part = "processes" if self.workload.processes else "framework"
        return self._on_filled_topic(part, checked=checked)

    def baseline(self, name: Baseline) -> Run:
        """Run a baseline."""
        if name == "ideal":
            return self._ideal()
        if name == "no-hang":
            run = self._stuck(hang=False)
        elif name == "one-thread":
            run = self._on_filled_topic("processes", one_thread=True)
        elif name == "overtake":
            run = self._on_filled_topic("park", on_failure="overtake")
        elif name == "without":
            run = self._on_filled_topic("ladder", failing=False)
        else:
            run = self._on_filled_topic("loop", settings=name.removesuffix("-loop"))
        if problems := _problems(run):
            raise RunError(f"{name} cannot serve for comparison: {problems}")
        return run

    def _ideal(self) -> Run:
        """Return what the slots allow; for coroutines at most a bare event loop's rate."""
        ideal = Run(self.workload.ideal_per_s)
        if not self.workload.coroutine:
            return ideal
        bare = cattrs.structure(children.run("bare_loop", workload=self.workload), Run)
        return min(ideal, bare, key=lambda run: run.records_per_s)

    def _on_filled_topic(self, part: str, **more: Any) -> Run:
        return self._child(part, self.topics.filled(self.workload.topic, self.say), **more)

    def _with_telemetry(self) -> Run:
        """Run without telemetry, and with each kind of it."""

        def run(name: str) -> Run:
            spec = evolve(self.workload.topic, ids=telemetry.VARIANTS[name].ids)
            topic = self.topics.filled(spec, self.say)
            return self._child("framework", topic, variant=name)

        return telemetry.side_by_side(
            run, self.workload.variants, next(self.turns), self.workload.topic.records
        )

    def _backfill(self) -> Run:
        """Run on Spark, and like ``window-consumer run`` for comparison; nothing is committed."""
        topic = self.topics.filled(self.workload.topic, self.say)
        found = self._child("backfill", topic, to_the_end=False)
        beside = {
            "run-noop": evolve(self.workload, work="noop"),
            "run-wait1": evolve(self.workload, work="wait", wait_s=0.001),
        }
        for name, workload in beside.items():
            run = self._child("framework", topic, workload=workload)
            self.say(f"{self.workload.name}: {name}: {_in_words(run)}")
            found = evolve(found, notes={**found.notes, name: run.records_per_s})
        return found

    def _crowding(self) -> Run:
        """Run for each wait; most of the topic is left unread."""
        topic = self.topics.filled(self.workload.topic, self.say)
        found = []
        for wait_s in self.workload.waits_s:
            run = self._child("downstream", topic, wait_s=wait_s, to_the_end=False)
            self.say(f"{self.workload.name}: {wait_s * 1000:g} ms: {_in_words(run)}")
            found.append((wait_s, run))
        return downstream.joined(found)

    def _stuck(self, *, hang: bool) -> Run:
        """Run with a separate topic, which fills while the worker runs."""
        topic = f"wc-bench-{uuid.uuid4().hex[:12]}"
        self.topics.make(topic)
        try:
            return self._child("stuck", topic, hang=hang)
        finally:
            self.topics.delete(topic)

    def _poison(self) -> Run:
        """Run one scene after another, each with separate topics."""
        found = []
        for scene in poison.SCENES:
            topic = f"wc-bench-{uuid.uuid4().hex[:12]}"
            both = (topic, poison.alone(topic))
            for name in both:
                self.topics.make(name)
            try:
                run = self._child("poison", topic, scene=asdict(scene))
            finally:
                for name in both:
                    self.topics.delete(name)
            notes = ", ".join(f"{name} {value:.3g}" for name, value in run.notes.items())
            self.say(f"{self.workload.name}: {_in_words(run)}, {notes}")
            found.append(run)
        return poison.joined(found)

    def _scenes(self) -> Run:
        return scenes.run_scenes(self.topics, self.workload, self.say)

    def _park(self, *, kill: bool) -> Run:
        if not kill:
            return self._on_filled_topic("park", on_failure="park")
        topic = self.topics.filled(self.workload.topic, self.say)
        return parking_kills.run_kills(self.topics, self.workload, topic, self.say)

    def _redrive(self, *, kill: bool) -> Run:
        """Run with separate topics and group, filled with dead letters before."""
        topics, spec = self.topics, self.workload.topic
        topic, group = (f"wc-bench-{uuid.uuid4().hex[:12]}" for _ in range(2))
        dead_letters = redriving.dead_letter_topic(group, topic)
        for name in (topic, dead_letters):
            topics.make(name)
        where = {"bootstrap": topics.bootstrap, "topic": topic, "group": group}
        try:
            children.run("dead_letters", spec=spec, **where)
            if kill:
                redriving.kill_on_the_way("redrive", topics, topic, group, self.workload)
            answer = children.run("redrive", **where)
            complete = topics.committed_equals_end(dead_letters, answer["progress_group"])
            run = evolve(cattrs.structure(answer, Run), committed_equals_end=complete)
            return redriving.judged(run, topics, topic, group, spec)
        finally:
            topics.delete_copies(group)
            topics.delete(topic)

    def _replay(self, *, kill: bool) -> Run:
        """Replay a filled topic into a new group, and some of it with a rate into another."""
        topics, spec = self.topics, self.workload.topic
        topic = topics.filled(spec, self.say)
        group, paced = (f"wc-bench-{uuid.uuid4().hex[:12]}" for _ in range(2))
        where = {"bootstrap": topics.bootstrap, "topic": topic}
        try:
            if kill:
                redriving.kill_on_the_way("replay", topics, topic, group, self.workload)
            answer = children.run("replay", **where, group=group)
            notes = {} if kill else children.run("replay_paced", **where, group=paced)
            complete = topics.committed_equals_end(topic, answer["progress_group"])
            run = evolve(cattrs.structure(answer, Run), committed_equals_end=complete)
            found = redriving.judged(run, topics, topic, group, spec)
            return evolve(found, notes={**notes, "twice": found.duplicates})
        finally:
            topics.delete_copies(group)
            topics.delete_copies(paced)

    def _child(
        self,
        part: str,
        topic: str,
        *,
        to_the_end: bool = True,
        workload: Workload | None = None,
        **more: Any,
    ) -> Run:
        group = f"wc-bench-{uuid.uuid4().hex[:12]}"
        answer = children.run_in(
            self.checkout,
            part,
            bootstrap=self.topics.bootstrap,
            topic=topic,
            group=group,
            workload=workload or self.workload,
            counts=[self.workload.topic.records // PARTITIONS] * PARTITIONS,
            **more,
        )
        complete = not to_the_end or all(
            self.topics.committed_equals_end(name, group)
            for name in self.topics.read_by(topic, group)
        )
        self.topics.delete_copies(group)
        self.topics.forget(group)
        return evolve(cattrs.structure(answer, Run), committed_equals_end=complete)


def _in_words(run: Run) -> str:
    ratios = "".join(f", {name} {value:.3f}" for name, value in run.ratios.items())
    problems = _problems(run)
    return f"{run.records_per_s:,.0f} records/s{ratios}{f' ({problems})' if problems else ''}"


def _problems(run: Run) -> str:
    found = {
        "lost": run.lost,
        "twice": run.duplicates,
        "out of order": run.order_violations,
        "not committed to the end": not run.committed_equals_end,
    }
    return ", ".join(
        name if number is True else f"{number:,} {name}" for name, number in found.items() if number
    )
