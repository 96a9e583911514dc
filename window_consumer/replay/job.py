"""One replay: its range, the run that it continues, and its clients."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import ExitStack
from datetime import UTC, datetime
from functools import partial
from uuid import uuid4

from attrs import define, field, frozen

from window_consumer.config import LoadedConfig, WorkerConfig
from window_consumer.kafka.cluster.topics import Topic
from window_consumer.kafka.group_progress import CommittedMark, GroupProgress
from window_consumer.kafka.log_times import offsets_at
from window_consumer.kafka.log_writer import PlainWriter
from window_consumer.kafka.topic_reader import TopicReader
from window_consumer.model.conditions.expressions import Expression
from window_consumer.model.errors import RunError
from window_consumer.model.offset_ranges import Span
from window_consumer.model.record import Message, TopicPartition
from window_consumer.plan.clients import Clients, CopyTarget
from window_consumer.plan.feature_list import FeatureList
from window_consumer.replay.conditions import holds
from window_consumer.replay.copies import ReplayCopies, ReplayTarget
from window_consumer.replay.ranges import (
    LastRun,
    Ranges,
    RunMark,
    Selection,
    WantedIds,
    last_run,
    planned,
    remaining,
)
from window_consumer.replay.replay import Replay, ReplayCounts, ReplayRules
from window_consumer.runtime.clock import SystemClock

_BATCH_BYTES = 1_000_000
"""librdkafka's default of batch.size."""


@frozen
class ReplayRequest:
    """The user's options for a replay."""

    selection: Selection
    name: str
    """The selection as written: a replay with the same name resumes."""
    where: Expression | None = None
    rate: float | None = None
    dry_run: bool = False
    new_ids: bool = False
    restart: bool = False


@define
class ReplayJob:
    """The range of one topic. Owner: one thread."""

    worker: WorkerConfig
    request: ReplayRequest
    loaded: LoadedConfig
    clients: Clients
    source: Topic
    entry: str
    entry_partitions: int
    max_message_bytes: int
    """The limit of the entry topic, if the cluster reports it."""
    group: str
    """The consumer group that holds the progress: named after topic, selection and condition."""
    ids: WantedIds
    """The ids of the selection."""
    run: str = ""
    """The name of the run, in the header of its copies."""
    resumed: bool = False
    ranges: Ranges = field(factory=dict)
    counts: ReplayCounts = field(factory=ReplayCounts)
    deleted: dict[int, list[Span]] = field(factory=dict)
    """The parts of the range that retention has deleted, by partition."""
    complete: bool = False
    last: LastRun | None = field(init=False, default=None)
    """The previous run, which may have been interrupted."""
    _logs: Mapping[TopicPartition, Span] = field(init=False, factory=dict)
    _standing: Mapping[TopicPartition, CommittedMark] = field(init=False, factory=dict)
    """The group's commits when the range was planned: a process that has moved them since then
    would copy the same records."""

    @property
    def missing_ids(self) -> list[str]:
        """The ids that a complete pass has not found."""
        return self.ids.missing() if self.complete and not self.resumed else []

    @property
    def topic_id(self) -> str:
        """The id of the source topic; empty if the cluster does not report it."""
        return self.source.topic_id or ""

    def inspect(self) -> None:
        """Query the topic's log and the last run. Raises if the cluster denies access."""
        with self._reader() as reader:
            self._logs = reader.spans(self.source.name)
        with self._progress() as progress:
            self._standing = progress.standing(self._logs)
        if not self.request.restart:
            marks = (
                (name, each.offset, RunMark.parse(each.mark))
                for name, each in self._standing.items()
            )
            self.last = last_run(marks, self.topic_id)

    def plan(self, run: str, *, resumes: bool) -> None:
        """Find the range; for a resumed run, the rest of it. Raises UsageError."""
        self.run, self.resumed = run, resumes
        if resumes and self.last is not None and self.last.name == run:
            self.ranges = remaining(self.last, self._logs)
        else:
            self.ranges = self._planned()
        for name, each in self.ranges.items():
            if each.deleted is not None:
                self.deleted[name.partition] = [each.deleted]

    def _planned(self) -> Ranges:
        selection, logs = self.request.selection, self._logs
        first, last = selection.from_ms, selection.to_ms
        with self._reader() as reader:
            begins = {} if first is None else offsets_at(reader, logs, first)
            ends = {} if last is None else offsets_at(reader, logs, last)
        return planned(selection, self.source.name, logs, begins, ends, self.ids)

    def claim(self) -> None:
        """Commit the beginning of the range: from now on the run can be resumed.

        Raises RunError if another process has begun the same replay since ``inspect``.
        """
        if self.ranges and not self.request.dry_run:
            with self._progress() as progress:
                progress.expect({name: self._standing[name] for name in self.ranges})
                progress.claim(self._spans, self._marks)

    @property
    def _spans(self) -> Mapping[TopicPartition, Span]:
        return {name: each.span for name, each in self.ranges.items()}

    @property
    def _marks(self) -> Mapping[TopicPartition, str]:
        spans = self._spans.items()
        return {name: str(RunMark(self.topic_id, self.run, span)) for name, span in spans}

    def replay(self, stop_asked: Callable[[], bool], features: FeatureList) -> None:
        """Copy the claimed range; ``complete`` is set if all of it was copied.

        Raises the error of a failed step, and RunError if another process has copied parts of it
        since.
        """
        if not self.ranges:
            self.complete = True
            return
        clients, spans, marks = self.clients, self._spans, self._marks
        with ExitStack() as opened:
            reader = opened.enter_context(self._reader())
            progress = opened.enter_context(self._progress())
            writer = None
            if not self.request.dry_run:
                begun = {
                    name: CommittedMark(span.first, marks[name]) for name, span in spans.items()
                }
                progress.expect(begun)
                progress.check_alone()
                access = (self.group, clients.log, clients.oauth_token)
                most = min(_BATCH_BYTES, self.max_message_bytes)
                plain = PlainWriter(clients.producer, *access, max_batch_bytes=most)
                opened.callback(plain.close)
                target = CopyTarget(self.loaded, clients, self.worker.group, self.entry, "replayed")
                writer = opened.enter_context(features.copy_writer(target, plain))
            progress.start(spans, marks)
            replay = Replay(
                rules=ReplayRules(
                    spans={name.partition: span for name, span in spans.items()},
                    copy=ReplayCopies(self._target()).copy,
                    matches=self._condition(),
                    rate=self.request.rate,
                ),
                records=progress,
                outlet=writer,
                finish=(lambda: None) if writer is None else partial(writer.finish, progress),
                conclude=(lambda: None) if writer is None else partial(self._conclude, progress),
                log_firsts=partial(_log_firsts, reader, self.source.name),
                clock=SystemClock(),
                counts=self.counts,
                deleted=self.deleted,
            )
            self.complete = replay.run(stop_asked=stop_asked)
        self._check_same_topic()

    def _conclude(self, progress: GroupProgress) -> None:
        marks = {
            name: str(RunMark(self.topic_id, self.run, span, is_over=True))
            for name, span in self._spans.items()
        }
        ends = {name: Span(span.end, span.end) for name, span in self._spans.items()}
        progress.claim(ends, marks)

    def _check_same_topic(self) -> None:
        now = self.clients.cluster.topics([self.source.name]).get(self.source.name)
        if now is None or now.topic_id != self.source.topic_id:
            raise RunError(
                f"{self.source.name} was deleted or recreated while its records were copied: the"
                " copies stay; start over with --restart"
            )

    def _target(self) -> ReplayTarget:
        return ReplayTarget(
            source=self.source.name,
            topic_id=self.topic_id,
            entry=self.entry,
            partitions=self.entry_partitions,
            group=self.worker.group,
            run=self.run,
            new_ids=self.request.new_ids,
        )

    def _condition(self) -> Callable[[Message], bool] | None:
        where, ids, now_ms = self.request.where, self.ids, SystemClock().wall_ms()
        wants_ids = bool(self.request.selection.ids)
        if where is None:
            return ids.__contains__ if wants_ids else None
        fits = partial(_holds, where, now_ms)
        return (lambda each: each in ids and fits(each)) if wants_ids else fits

    def _reader(self) -> TopicReader:
        clients = self.clients
        return TopicReader(
            clients.consumer, clients.log, group=self.group, oauth_token=clients.oauth_token
        )

    def _progress(self) -> GroupProgress:
        clients = self.clients
        return GroupProgress(clients.consumer, self.group, clients.log, clients.oauth_token)


def new_run() -> str:
    """Return the name of a run that begins now; names of later runs sort after it."""
    now = datetime.fromtimestamp(SystemClock().wall_ms() / 1000, UTC)
    return f"{now:%Y%m%dT%H%M%SZ}-{uuid4().hex[:6]}"


def _log_firsts(reader: TopicReader, topic: str) -> dict[int, int]:
    return {name.partition: span.first for name, span in reader.spans(topic).items()}


def _holds(where: Expression, now_ms: int, message: Message) -> bool:
    return holds(where, message, now_ms)
