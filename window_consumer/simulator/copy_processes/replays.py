"""Processes that replay records: the real Replay on the fake broker, killed at any step."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING

from attrs import evolve, frozen

from window_consumer.model.offset_ranges import Span
from window_consumer.model.protocols import CommittedOffset
from window_consumer.model.record import TopicPartition
from window_consumer.replay.copies import ReplayTarget
from window_consumer.replay.ranges import (
    LastRun,
    Ranges,
    RunMark,
    Selection,
    WantedIds,
    last_run,
    planned,
)
from window_consumer.replay.replay import ReplayRules
from window_consumer.simulator.copy_processes.process import (
    CONDITIONS,
    CopyProcess,
    CopyProcessSink,
    WatchedProgress,
)
from window_consumer.simulator.fault_plan import FaultPlan
from window_consumer.simulator.schedule import GROUP, entry_topic
from window_consumer.simulator.watches.replays import ReplayWatch, WatchedReplay
from window_consumer.testing.fakes.redrive import FakeOutlet

if TYPE_CHECKING:
    from window_consumer.simulator.shared import SharedSimulation

_RESUMED = 0.7
"""How often a new replay resumes an interrupted one, if any."""


class _ReplayProgress(WatchedProgress[WatchedReplay]):
    def __init__(self, steps: CopyProcess, watch: ReplayWatch, process: WatchedReplay):
        super().__init__(steps, process.group, watch, process)
        self._runs = watch

    def claim(
        self, spans: Mapping[TopicPartition, Span], marks: Mapping[TopicPartition, str]
    ) -> None:
        try:
            super().claim(spans, marks)
        finally:
            for name, text in marks.items():
                mark = RunMark.parse(text)
                if mark is not None and self._group.committed(name).metadata == text:
                    self._runs.claimed(self._process, is_over=bool(mark.is_over))

    def conclude(self) -> None:
        over = {name: RunMark.parse(mark) for name, mark in self._marks.items()}
        marks = {name: evolve(mark, is_over=True) for name, mark in over.items() if mark}
        ends = {name: Span(mark.span.end, mark.span.end) for name, mark in marks.items()}
        self.claim(ends, {name: str(mark) for name, mark in marks.items()})
        self._may_die()


@frozen
class _ReplayRequest:
    """A request to replay; the same request again resumes."""

    source: str
    offsets: Mapping[int, int]
    """The first offset of each partition."""
    what: str = "all"
    new_ids: bool = False

    def __str__(self) -> str:
        places = ", ".join(f"{number}:{offset}" for number, offset in self.offsets.items())
        return f"{self.source} {self.what} from {places}{' with new ids' * self.new_ids}"


class Replays:
    """The replays of one simulation. Owner: one thread."""

    def __init__(
        self, scene: SharedSimulation, fault_plan: FaultPlan, meanwhile: Callable[[], None]
    ):
        self._scene = scene
        self._plan = scene.plan
        self._rng = scene.rng
        self._topics = scene.broker.topics
        self._history = scene.history
        self._fault_plan = fault_plan
        self._process = CopyProcess(scene, fault_plan, meanwhile, scene.plan.replaying.killed)
        self._watch = ReplayWatch(scene.history, scene.calls.parking)
        self._begun = 0
        self._runs = 0
        self._at_work: list[_ReplayRequest] = []
        self._cut_short: dict[str, _ReplayRequest] = {}
        """By the request's text, in order."""

    @property
    def at_work(self) -> bool:
        """Whether a replay is running."""
        return bool(self._at_work)

    def begin(self) -> None:
        """Replay until the end is reached or the process ends.

        While one runs, the same replay may be started a second time.
        """
        rng = self._rng
        if self._at_work:
            self._go(self._at_work[0], restart=False)
        elif self._cut_short and rng.random() < _RESUMED:
            self._go(rng.choice(list(self._cut_short.values())), restart=rng.random() < 0.1)
        else:
            self._go(self._drawn(), restart=rng.random() < 0.1)

    def finish(self) -> None:
        """Resume interrupted replays once nothing fails any more."""
        for request in list(self._cut_short.values()):
            self._go(request, restart=False)

    def _drawn(self) -> _ReplayRequest:
        rng = self._rng
        source = rng.choice(self._plan.sources)
        logs = self._topics.by_name[source].logs
        chosen = logs if rng.random() < 0.7 else rng.sample(logs, 1)
        from_start = rng.random() < 0.4
        return _ReplayRequest(
            source,
            {
                log.name.partition: 0 if from_start else int(rng.random() * (log.end + 1))
                for log in chosen
            },
            rng.choice(("all", *CONDITIONS)),
            new_ids=rng.random() < 0.2,
        )

    def _go(self, request: _ReplayRequest, *, restart: bool) -> None:
        """Run one process until it ends, in whatever way."""
        self._begun += 1
        process = WatchedReplay(
            f"replay {self._begun}",
            f"{GROUP}.replay.{request}",
            request.source,
            self._plan.replaying.batch_records,
            CONDITIONS[request.what],
            restart=restart,
            new_ids=request.new_ids,
        )
        if self._history.trace is not None:
            self._history.record(
                f"{process} replays {request}{', from the first' if restart else ''}"
            )
        self._at_work.append(request)
        is_over = self._process.outcome(process, partial(self._replay, process, request))
        self._at_work.pop()
        if is_over:
            self._cut_short.pop(str(request), None)
        else:
            self._cut_short[str(request)] = request
        self._watch.ended(process, is_over=is_over)

    def _replay(self, process: WatchedReplay, request: _ReplayRequest) -> bool:
        """Replay as ``window_consumer.replay`` does; return whether everything was copied."""
        scene, steps = self._scene, self._process
        group = scene.broker.group(process.group)
        group.commit_fault = self._fault_plan.commit_fault
        progress = _ReplayProgress(steps, self._watch, process)
        logs = {
            log.name: Span(log.start, log.end) for log in self._topics.by_name[request.source].logs
        }
        topic_id = self._topics.by_name[request.source].topic_id
        standing = progress.standing(logs)
        last = None if process.restart else _last_run(standing, topic_id)
        steps.step()
        ranges = self._ranges(request, last, logs)
        is_resumed = last is not None and not last.is_over
        if not any(each.span.count for each in ranges.values()):
            return True  # an error, unless it is resumed: then the rest was deleted
        if last is not None and is_resumed:
            process.run = last.name
        else:
            self._runs += 1
            process.run = f"run {self._runs:06d}"
        spans = {name: each.span for name, each in ranges.items()}
        marks = {name: str(RunMark(topic_id, process.run, span)) for name, span in spans.items()}
        self._watch.begin(process, spans)
        progress.expect({name: standing[name] for name in spans})
        progress.claim(spans, marks)
        steps.step()
        progress.check_alone()
        progress.start(spans, marks)
        return self._copied(process, request, progress, spans)

    def _ranges(
        self, request: _ReplayRequest, last: LastRun | None, logs: Mapping[TopicPartition, Span]
    ) -> Ranges:
        if last is not None and not last.is_over:
            return self._scene.subject.remaining(last, logs)
        ids = WantedIds(frozenset(), request.source)
        return planned(Selection(offsets=request.offsets), request.source, logs, {}, {}, ids)

    def _copied(
        self,
        process: WatchedReplay,
        request: _ReplayRequest,
        progress: _ReplayProgress,
        spans: Mapping[TopicPartition, Span],
    ) -> bool:
        scene, steps, subject = self._scene, self._process, self._scene.subject
        source = self._topics.by_name[request.source]
        entry = entry_topic(request.source)
        target = ReplayTarget(
            source=request.source,
            topic_id=source.topic_id,
            entry=entry,
            partitions=self._topics.partitions(entry),
            group=GROUP,
            run=process.run,
            new_ids=request.new_ids,
        )
        make_sink = partial(CopyProcessSink[WatchedReplay], watch=self._watch, process=process)
        replay = subject.make_replay(
            rules=ReplayRules(
                spans={name.partition: span for name, span in spans.items()},
                copy=subject.make_replay_copies(target).copy,
                matches=process.matches,
                rate=20.0 if self._rng.random() < 0.1 else None,
                batch_records=process.batch_records,
            ),
            records=progress,
            outlet=FakeOutlet(self._topics, scene.broker.fate, make_sink, self._rng, steps.step),
            finish=progress.commit,
            conclude=progress.conclude,
            log_firsts=lambda: {log.name.partition: log.start for log in source.logs},
            clock=steps.clock(),
        )
        is_over = replay.run(stop_asked=steps.stop_asked)
        if self._history.trace is not None:
            self._history.record(f"{process} ends: {replay.counts}")
        return is_over


def _last_run(standing: Mapping[TopicPartition, CommittedOffset], topic_id: str) -> LastRun | None:
    marks = (
        (name, each.next_offset or 0, RunMark.parse(each.metadata))
        for name, each in standing.items()
    )
    return last_run(marks, topic_id)
