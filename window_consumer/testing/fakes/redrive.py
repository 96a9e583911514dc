"""The parts of a redrive or a replay on a fake broker: a reader, a writer of copies.

They work like ``kafka.group_progress`` and ``kafka.log_writer``, step by step, so that a process
can end between any two steps.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from functools import partial
from random import Random

from attrs import evolve

from window_consumer.model.errors import PublishFailedError, RunError
from window_consumer.model.offset_ranges import Span
from window_consumer.model.protocols import Commit, CommittedOffset, Copy
from window_consumer.model.record import TopicPartition
from window_consumer.testing.fakes.broker import FakeBroker
from window_consumer.testing.fakes.log import FakeMessage
from window_consumer.testing.fakes.sink import FakeSink, FateOf
from window_consumer.testing.fakes.topics import FakeTopics

Step = Callable[[], None]
"""Called between two steps: others act, or the process ends."""


class FakeProgress:
    """Reads a topic for a group that nobody joins. Owner: one thread."""

    def __init__(self, broker: FakeBroker, group: str, rng: Random, step: Step, may_die: Step):
        self._broker = broker
        self._group = broker.group(group)
        self._rng = rng
        self._step = step
        self._may_die = may_die
        """Like ``step``, but nobody else can act meanwhile."""
        self._marks: Mapping[TopicPartition, str] = {}
        self._spans: dict[TopicPartition, Span] = {}
        self._committed: dict[TopicPartition, CommittedOffset] = {}
        self._passed: dict[TopicPartition, None] = {}
        """The partitions read, in order: a set would make a schedule depend on the process."""

    def begin(self, topic: str, mark: str, *, restart: bool) -> None:
        """Go to the group's offsets, or to the beginning, and record the ends of the logs."""
        logs = self._broker.topics.by_name[topic].logs
        standing = self.standing([log.name for log in logs])
        spans = {}
        for log in logs:
            found = standing[log.name].next_offset
            ours = standing[log.name].metadata == mark and not restart
            start = found if ours and found is not None and log.holds(found) else log.start
            spans[log.name] = Span(start, log.end)
        self.start(spans, dict.fromkeys(spans, mark))

    def standing(self, names: Iterable[TopicPartition]) -> dict[TopicPartition, CommittedOffset]:
        """Return the group's commits, which ``check_alone`` compares with later ones."""
        found = {name: self._group.committed(name) for name in names}
        self._committed = dict(found)
        return found

    def claim(
        self, spans: Mapping[TopicPartition, Span], marks: Mapping[TopicPartition, str]
    ) -> None:
        """Commit the beginnings of the spans, all or none; raises CommitFailedError if that fails.

        Raises RunError if another process has moved the group, see ``expect``.
        """
        self.check_alone()
        self._may_die()
        commits = [Commit(name, span.first, marks[name]) for name, span in spans.items()]
        refusal = self._group.commit_fault(commits[0])
        if refusal is None or refusal.written:
            for commit in commits:
                self._group.write_as_administrator(commit)
                self._committed[commit.name] = self._group.committed(commit.name)
        if refusal is not None:
            raise refusal.error

    def expect(self, committed: Mapping[TopicPartition, CommittedOffset]) -> None:
        """Let ``check_alone`` compare with these commits."""
        self._committed = dict(committed)

    def start(
        self, spans: Mapping[TopicPartition, Span], marks: Mapping[TopicPartition, str]
    ) -> None:
        """Read these spans from now on; commits carry their marks."""
        self._spans, self._marks = dict(spans), marks

    def read(self, max_records: int) -> Sequence[FakeMessage]:
        """Return the next records of some partition, none at the end of all."""
        self._step()
        unread = [name for name, span in self._spans.items() if span.first < span.end]
        self._rng.shuffle(unread)
        for name in unread:
            span = self._spans[name]
            most = 1 + int(self._rng.random() * max_records)
            messages, next_offset = self._broker.log(*name).read(span.first, most)
            messages = [each for each in messages if each.offset() < span.end]
            self._spans[name] = evolve(span, first=min(next_offset, span.end))
            self._passed[name] = None
            if messages:
                return messages
        return ()

    def progress(self) -> dict[TopicPartition, int]:
        """Return the position in each partition that is read."""
        return {name: self._spans[name].first for name in self._passed}

    def check_alone(self) -> None:
        """Raise RunError if another process has moved the group since our last commit."""
        self._step()
        for name, before in self._committed.items():
            found = self._group.committed(name)
            if found != before:
                raise RunError(f"the progress of {name} was {before}, somebody set it to {found}")

    def commit(self) -> None:
        """Commit the progress; raises CommitFailedError if that fails."""
        commits = [
            Commit(name, offset, self._marks[name]) for name, offset in self.progress().items()
        ]
        # Another commit between check_alone and this is not detected; the interval is short.
        self._may_die()
        for commit in commits:
            refusal = self._group.commit_fault(commit)
            if refusal is None or refusal.written:
                self._group.write_as_administrator(commit)
                self._committed[commit.name] = self._group.committed(commit.name)
            if refusal is not None:
                raise refusal.error
        self._step()


class FakeOutlet:
    """Writes copies and waits for all acks together. Owner: one thread.

    Copies for one topic arrive in order; the order of topics is random.
    """

    def __init__(
        self,
        topics: FakeTopics,
        fate_of: FateOf,
        make_sink: Callable[[FakeTopics, FateOf], FakeSink],
        rng: Random,
        step: Step,
    ):
        self._make_sink = partial(make_sink, topics, fate_of)
        self._sinks: dict[str, FakeSink] = {}
        self._rng = rng
        self._step = step
        self._sent = 0
        self._failed: dict[int, PublishFailedError] = {}

    def send(self, copies: Sequence[Copy]) -> None:
        """Send copies; raises PublishFailedError if the client's queue stays full."""
        for copy in copies:
            self._step()
            place = self._sent
            self._sent += 1
            sink = self._sinks.get(copy.topic)
            if sink is None:
                sink = self._sinks[copy.topic] = self._make_sink()
            sink.write(copy, partial(self._answer, place))
            failure = self._failed.get(place)
            if failure is not None:
                raise failure
            if self._rng.random() < 0.3:
                self._serve(self._sinks.values())

    def _answer(self, place: int, error: PublishFailedError | None) -> None:
        if error is not None:
            self._failed[place] = error

    def acks(self) -> Mapping[int, PublishFailedError]:
        """Wait for all answers; return the errors for copies that are too large, by index."""
        while waiting := [sink for sink in self._sinks.values() if sink.unanswered]:
            self._step()
            self._serve(waiting)
        self._step()
        failed, self._failed, self._sent = self._failed, {}, 0
        for error in failed.values():
            if not error.too_large:
                raise error
        return failed

    def _serve(self, sinks: Collection[FakeSink]) -> None:
        self._rng.choice(list(sinks)).serve(at_most=1)
