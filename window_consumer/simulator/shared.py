"""The shared parts of a simulation's members, and their clients, which report to the watches."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from random import Random
from typing import Any

from window_consumer.model.protocols import Batch, Commit, CommitResults, Copy, Delivery
from window_consumer.model.record import TopicPartition
from window_consumer.simulator.history import SimulationHistory
from window_consumer.simulator.ladder_topics import LadderTopics
from window_consumer.simulator.log_history import Tenure
from window_consumer.simulator.schedule import GROUP, RESULT_TOPICS, SchedulePlan
from window_consumer.simulator.system_under_test import SystemUnderTest
from window_consumer.simulator.watches.audit import AuditWatch
from window_consumer.simulator.watches.calls import CallWatch
from window_consumer.simulator.watches.commits import CommitWatch
from window_consumer.simulator.watches.copies import CopyWatch
from window_consumer.simulator.watches.results import ResultWatch
from window_consumer.simulator.watches.transactions import TransactionWatch
from window_consumer.testing.clock import ManualClock
from window_consumer.testing.fakes.broker import FakeBroker
from window_consumer.testing.fakes.log import FakeMessage
from window_consumer.testing.fakes.sink import FakeSink
from window_consumer.testing.fakes.source import FakeSource


class SharedSimulation:
    """The shared parts of one simulation's members. Owner: one thread."""

    def __init__(self, plan: SchedulePlan, rng: Random, subject: SystemUnderTest):
        self.plan = plan
        self.rng = rng
        self.subject = subject
        self.clock = ManualClock(now=1.0)
        self.broker = FakeBroker()
        self.broker.group(GROUP, incremental=plan.incremental)
        self.ladder = LadderTopics(plan, self.broker, subject.reads_on)
        retry_levels = self.ladder.retry_levels
        self.history = SimulationHistory(
            plan, self.broker, self.clock.now, self.clock.wall_ms, retry_levels
        )
        self.commits = CommitWatch(self.history)
        self.calls = CallWatch(self.history)
        self.copies = CopyWatch(self.calls)
        self.results = ResultWatch(self.calls)
        self.transactions = TransactionWatch(self.history, self._record_of)
        self.audit = AuditWatch(self.history)

    def output_watch(self, copy: Copy) -> CopyWatch | ResultWatch:
        """Return the watch of a copy or a result."""
        return self.results if copy.topic in RESULT_TOPICS else self.copies

    def _record_of(self, copy: Copy) -> tuple[Tenure, int]:
        return self.output_watch(copy).record_of(copy)


class WatchedSource(FakeSource):
    """A fake Source that reports its traffic to the history."""

    def __init__(self, scene: SharedSimulation):
        super().__init__(scene.broker.topics, scene.broker.group(GROUP))
        self.owner: Any = None
        self.largest_batch = 0
        """The most bytes that one poll has returned."""
        self._scene = scene

    def poll(self, max_records: int, timeout_s: float) -> Sequence[Batch]:
        """Return records and serve the listener."""
        self.record_assignment()
        batches = super().poll(max_records, timeout_s)
        self.record_assignment()
        size = 0
        for batch in batches:
            self._scene.history.delivered(self.owner, batch.name, batch.messages)
            size += sum(map(len, batch.messages))
        self.largest_batch = max(self.largest_batch, size)
        return batches

    def _give_up(
        self, tell: Callable[[Sequence[TopicPartition]], None], names: Sequence[TopicPartition]
    ) -> None:
        if not self._group.has(self):
            self._scene.calls.kept.losing(self.owner, names)
        super()._give_up(tell, names)
        self._scene.history.given_up(self.owner, names)

    def begins_again(self, names: Sequence[TopicPartition]) -> None:
        """Report that the member itself begins partitions again."""
        self._scene.history.begins_again(self.owner, names)

    def record_assignment(self) -> None:
        """Report the Engine's new assignments to the history."""
        for name in self.held:
            self._scene.history.tenure(self.owner, name)

    def commit(self, commits: Sequence[Commit]) -> None:
        """Send commits."""
        self._scene.commits.sending(self.owner, commits)
        super().commit(commits)

    def commit_now(self, commits: Sequence[Commit], timeout_s: float) -> CommitResults:
        """Send commits and wait for the answers."""
        self._scene.commits.sending(self.owner, commits)
        return super().commit_now(commits, timeout_s)

    def seek(self, name: TopicPartition, offset: int) -> None:
        """Continue reading at another offset."""
        self._scene.history.sought(self.owner, name, offset)
        super().seek(name, offset)


class WatchedSink(FakeSink):
    """A fake Sink that reports its copies and results to the history."""

    def __init__(self, scene: SharedSimulation):
        super().__init__(scene.broker.topics, scene.broker.fate)
        self.owner: Any = None
        self._scene = scene

    def write(self, copy: Copy, on_delivery: Delivery) -> None:
        """Send a copy or a result."""
        watch = self._scene.output_watch(copy)
        super().write(copy, watch.writing(self.owner, copy, on_delivery))

    def append(self, name: TopicPartition, copy: Copy) -> FakeMessage:
        """Append it and report it to the history."""
        message = super().append(name, copy)
        self._scene.output_watch(copy).written(name, copy, message)
        return message
