"""Processes that redrive dead letters: the real Redrive on the fake broker, killed at any step."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING

from attrs import evolve, frozen

from window_consumer.dlq.redrive import RedriveRules
from window_consumer.dlq.redrive_copy import Destination
from window_consumer.dlq.redrive_state import Resolved, read_resolved
from window_consumer.engine.retry.retry_topics import state_topic
from window_consumer.model.record import TopicPartition
from window_consumer.simulator.copy_processes.process import (
    CONDITIONS,
    CopyProcess,
    CopyProcessSink,
    WatchedProgress,
)
from window_consumer.simulator.fault_plan import FaultPlan
from window_consumer.simulator.schedule import GROUP, copy_topic, entry_topic
from window_consumer.simulator.watches.redrives import RedriveWatch, WatchedRun
from window_consumer.testing.fakes.log import FakeLog, FakeMessage
from window_consumer.testing.fakes.redrive import FakeOutlet

if TYPE_CHECKING:
    from window_consumer.simulator.shared import SharedSimulation


@frozen
class _RedriveRequest:
    """A request to redrive."""

    source: str
    what: str = "all"
    rate: float | None = None
    restart: bool = False


class Redrives:
    """The redrives of one simulation. Owner: one thread."""

    def __init__(
        self, scene: SharedSimulation, fault_plan: FaultPlan, meanwhile: Callable[[], None]
    ):
        self._scene = scene
        self._plan = scene.plan
        self._rng = scene.rng
        self._topics = scene.broker.topics
        self._history = scene.history
        self._fault_plan = fault_plan
        self._process = CopyProcess(scene, fault_plan, meanwhile, scene.plan.redriving.killed)
        self._watch = RedriveWatch(scene.history, scene.copies)
        self._begun = 0
        self._at_work: list[_RedriveRequest] = []
        if "redrive" in scene.plan.actions:
            self._topics.create(state_topic(GROUP), 1)

    @property
    def at_work(self) -> bool:
        """Whether a redrive is running."""
        return bool(self._at_work)

    def begin(self) -> None:
        """Redrive until the end is reached or the process ends.

        While one runs, the same redrive may be started a second time.
        """
        rng = self._rng
        if self._at_work:
            self._go(evolve(self._at_work[0], restart=False))
            return
        if rng.random() < 0.3:
            self._compact_memory()
        self._go(
            _RedriveRequest(
                source=rng.choice(self._plan.sources),
                what=rng.choice(("all", *CONDITIONS)),
                rate=20.0 if rng.random() < 0.1 else None,
                restart=rng.random() < 0.1,
            )
        )

    def finish(self) -> None:
        """Redrive the rest once nothing fails any more."""
        for source in self._plan.sources:
            if "redrive" in self._plan.actions:
                self._watch.check_the_end(self._go(_RedriveRequest(source)))

    def _go(self, request: _RedriveRequest) -> WatchedRun:
        """Run one process until it ends, in whatever way."""
        self._begun += 1
        run = WatchedRun(
            f"redrive {self._begun}",
            self._rules(request),
            copy_topic(request.source),
            request.restart,
        )
        if self._history.trace is not None:
            restart = ", from the first" if request.restart else ""
            self._history.record(
                f"{run} puts dead letters of {run.topic} back: {request.what}{restart}"
            )
        self._at_work.append(request)
        progress = self._process.outcome(run, partial(self._put_back, run))
        self._at_work.pop()
        self._watch.ended(run, progress)
        return run

    def _rules(self, request: _RedriveRequest) -> RedriveRules:
        dead_letters, entry = copy_topic(request.source), entry_topic(request.source)
        count = self._topics.partitions
        facts = self._topics.facts(dead_letters)
        return RedriveRules(
            to=Destination(entry, count(entry), of_the_ladder=True),
            state_topic=state_topic(GROUP),
            by=f"{GROUP}.redrive.{request.source}.{request.what}",
            topic_id=None if facts is None else facts.topic_id,
            max_redrives=self._plan.redriving.max_redrives,
            rate=request.rate,
            matches=CONDITIONS[request.what],
            batch_records=self._plan.redriving.batch_records,
        )

    def _put_back(self, run: WatchedRun) -> Mapping[TopicPartition, int]:
        """Redrive as ``window_consumer.dlq`` does; return the progress at the end."""
        scene, process = self._scene, self._process
        rules = run.rules
        known = read_resolved(self._memory.messages, run.topic, rules.topic_id)
        self._watch.begin(run, known)
        scene.broker.group(rules.by).commit_fault = self._fault_plan.commit_fault
        letters = WatchedProgress(process, rules.by, self._watch, run)
        letters.begin(run.topic, f"wcr1.{rules.topic_id}", restart=run.restart)
        make_sink = partial(CopyProcessSink[WatchedRun], watch=self._watch, process=run)
        fate = scene.broker.fate
        outlet = FakeOutlet(self._topics, fate, make_sink, self._rng, process.step)
        redrive = scene.subject.make_redrive(
            rules=rules,
            letters=letters,
            outlet=outlet,
            finish=letters.commit,
            fetch=partial(self._fetched, run),
            clock=process.clock(),
            resolved=Resolved() if run.restart else known,
        )
        redrive.run(stop_asked=process.stop_asked)
        if self._history.trace is not None:
            self._history.record(f"{run} ends: {redrive.counts}")
        return letters.progress()

    def _fetched(
        self, run: WatchedRun, topic: str, partition: int, offset: int
    ) -> FakeMessage | None:
        self._process.step()
        log = self._topics.log(TopicPartition(topic, partition))
        try:
            found = None if log is None else log.at(offset)
        except KeyError:
            found = None
        self._watch.fetched(run, (topic, partition, offset), found)
        return found

    @property
    def _memory(self) -> FakeLog:
        return self._topics.by_name[state_topic(GROUP)].logs[0]

    def _compact_memory(self) -> None:
        """Compact the memory topic: keep the last record of each key."""
        last = {message.key(): message.offset() for message in self._memory.messages}
        there = {message.offset() for message in self._memory.messages}
        self._memory.compact(there - set(last.values()))
