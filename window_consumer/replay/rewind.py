"""Moves the offsets of a stopped group: pure planning, the records between, and the commit."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import chain

from attrs import define, field, frozen

from window_consumer.config import LoadedConfig, WorkerConfig
from window_consumer.engine.commits.commit_metadata import (
    CommitNote,
    decode,
    encode,
    is_of_earlier_topic,
    topic_hash,
)
from window_consumer.kafka.cluster.topics import Topic
from window_consumer.kafka.group_progress import CommittedMark, GroupProgress
from window_consumer.kafka.log_times import offsets_at
from window_consumer.kafka.topic_reader import TopicReader
from window_consumer.model.errors import UsageError, WindowConsumerError
from window_consumer.model.offset_ranges import Span
from window_consumer.model.record import TIMESTAMP_NOT_AVAILABLE, TopicPartition
from window_consumer.plan.clients import Clients
from window_consumer.plan.topics.command_topics import CommandTopics

_MEMBERS_NAMED = 10


@frozen
class RewindTarget:
    """Where to move the group: exactly one of the two is set."""

    time_ms: int | None = None
    """To the first records of this time or later, in milliseconds since 1970."""
    offsets: Mapping[int, int] = field(factory=dict)
    """Offsets by partition; other partitions stay where they are."""


@frozen
class OffsetMove:
    """One partition's move; offsets are of the record that is read next."""

    name: TopicPartition
    before: int | None
    """None without a commit."""
    to: int
    log: Span
    deleted: Span | None = None
    """The offsets at the target that retention has deleted."""
    finished: tuple[range, ...] = ()
    """The finished offsets beyond ``before``: called again, unless records are skipped."""
    known_partitions: int = 0
    """How many partitions the group knew at its first start, see ``CommitNote``."""

    @property
    def is_forward(self) -> bool:
        """Whether records would be skipped."""
        return self.before is not None and self.to > self.before

    @property
    def between(self) -> Span:
        """The range of the offsets that are read again or skipped."""
        before = self._before
        first, end = min(before, self.to), max(before, self.to)
        if self.finished and not self.is_forward:
            end = self.finished[-1].stop
        return Span(max(first, self.log.first), min(end, self.log.end))

    @property
    def _before(self) -> int:
        return self.log.end if self.before is None else self.before

    def metadata(self, topic_id: str | None) -> str:
        """Return the new commit's metadata: records finished beyond a skip stay finished."""
        left = (range(max(each.start, self.to), each.stop) for each in self.finished)
        note = CommitNote(
            self.to,
            topic_hash=topic_hash(topic_id),
            clean=True,
            finished=tuple(each for each in left if each) if self.is_forward else (),
            known_partitions=self.known_partitions,
        )
        return encode(note)[0]

    def concerns(self, offset: int) -> bool:
        """Return whether an offset of ``between`` is read again or skipped."""
        if self.is_forward:
            return not any(offset in each for each in self.finished)
        return offset < self._before or any(offset in each for each in self.finished)


def moves_of(
    target: RewindTarget,
    logs: Mapping[TopicPartition, Span],
    committed: Mapping[TopicPartition, CommittedMark],
    begins: Mapping[TopicPartition, int],
    topic_id: str | None,
) -> list[OffsetMove]:
    """Return the moves, without partitions already there with nothing finished beyond.

    ``begins`` are the first offsets of the time. A commit of an earlier topic of the same name is
    ignored, as at a start. Raises UsageError for partitions and offsets that the topic does not
    have.
    """
    numbers = {name.partition: name for name in logs}
    for partition, offset in target.offsets.items():
        if partition not in numbers:
            raise UsageError(f"--to {partition}:{offset}: there is no partition {partition}")
        log = logs[numbers[partition]]
        if offset > log.end:
            raise UsageError(
                f"--to {partition}:{offset}: the log of {numbers[partition]} ends at {log.end}"
            )
    wanted = begins
    if target.time_ms is None:
        wanted = {numbers[number]: offset for number, offset in target.offsets.items()}
    moves, now = [], topic_hash(topic_id)
    for name, offset in sorted(wanted.items()):
        log = logs[name]
        to = max(offset, log.first)
        lost = Span(offset, to)
        if target.time_ms is not None:
            lost = Span(0, log.first if to == log.first else 0)
        commit = committed[name]
        note = decode(commit.mark)
        is_of_earlier = note is not None and is_of_earlier_topic(note, commit.offset, now)
        before = None if commit.offset < 0 or is_of_earlier else commit.offset
        if note is None or note.next_offset != before or note.fired is not None:
            finished: tuple[range, ...] = ()  # otherwise they may still wait
        else:
            finished = note.finished
        if to != before or finished:
            deleted = lost if lost.count else None
            known = 0 if note is None else note.known_partitions
            moves.append(OffsetMove(name, before, to, log, deleted, finished, known))
    return moves


@define
class Between:
    """The records between a partition's old and new offset."""

    records: int = 0
    bytes: int = 0
    """Bytes of keys and values."""
    first_ms: int | None = None
    last_ms: int | None = None
    """The times of the oldest and the newest record."""

    def add(self, size: int, time_ms: int | None) -> None:
        """Count a record."""
        self.records += 1
        self.bytes += size
        if time_ms is not None:
            self.first_ms = time_ms if self.first_ms is None else min(self.first_ms, time_ms)
            self.last_ms = time_ms if self.last_ms is None else max(self.last_ms, time_ms)


@define
class Rewind:
    """Moves the group of one worker. Owner: one thread."""

    loaded: LoadedConfig
    worker: WorkerConfig
    clients: Clients
    sources: Sequence[Topic]
    moves: list[OffsetMove] = field(init=False, factory=list)

    def plan(self, target: RewindTarget, *, skip: bool) -> None:
        """Find the moves.

        Raises UsageError for a running group, and for moves forward without ``skip``.
        """
        CommandTopics(self.loaded, self.worker, self.clients.cluster).check_group(self.worker.group)
        self.check_stopped()
        with self._reader() as reader, self._progress() as progress:
            for source in self.sources:
                logs = reader.spans(source.name)
                commits = progress.standing(logs)
                begins = {}
                if target.time_ms is not None:
                    begins = offsets_at(reader, logs, target.time_ms)
                self.moves += moves_of(target, logs, commits, begins, source.topic_id)
        forward = [each for each in self.moves if each.is_forward]
        if forward and not skip:
            lines = "\n".join(f"  {each.name}: from {each.before} to {each.to}" for each in forward)
            raise UsageError(
                f"this would skip records of {self.worker.group}:\n{lines}\nadd --skip to do it"
            )

    def check_stopped(self) -> None:
        """If the group runs, raise UsageError with the names of its members."""
        group = self.clients.cluster.group(self.worker.group)
        if group.members:
            raise self._running(list(map(str, group.listed)))

    def _running(self, names: Sequence[str]) -> UsageError:
        named = [*names[:_MEMBERS_NAMED], *(["..."] if len(names) > _MEMBERS_NAMED else [])]
        who = ", ".join(named) or "its members cannot be seen here"
        return UsageError(
            f"the group {self.worker.group} is running: {who}: stop all its members first, or use"
            " replay, which works beside them (a member that was killed, or has a"
            " group.instance.id, counts until its session times out)"
        )

    def measured(self) -> dict[TopicPartition, Between]:
        """Read the records between, and return their size for each partition."""
        moves = {each.name: each for each in self.moves}
        found = {name: Between() for name in moves}
        with self._reader() as reader:
            spans = {name: move.between for name, move in moves.items()}
            for message in chain.from_iterable(reader.read(spans)):
                name = TopicPartition(message.topic(), message.partition())
                if not moves[name].concerns(message.offset()):
                    continue
                kind, milliseconds = message.timestamp()
                size = len(message.key() or b"") + len(message.value() or b"")
                time_ms = None if kind == TIMESTAMP_NOT_AVAILABLE else milliseconds
                found[name].add(size, time_ms)
        return found

    def commit(self) -> None:
        """Move the offsets, all at once. Raises UsageError if the group has begun to run."""
        ids = {source.name: source.topic_id for source in self.sources}
        spans = {each.name: Span(each.to, each.to) for each in self.moves}
        marks = {each.name: each.metadata(ids[each.name.topic]) for each in self.moves}
        with self._progress() as progress:
            try:
                progress.claim(spans, marks)
            except WindowConsumerError as error:
                # Kafka accepts offsets from outside the group only while it has no members.
                self.check_stopped()
                if self.clients.cluster.group(self.worker.group).members is None:
                    raise self._running(()) from error
                raise

    def _reader(self) -> TopicReader:
        clients = self.clients
        return TopicReader(
            clients.consumer, clients.log, group=self.worker.group, oauth_token=clients.oauth_token
        )

    def _progress(self) -> GroupProgress:
        clients = self.clients
        return GroupProgress(clients.consumer, self.worker.group, clients.log, clients.oauth_token)
