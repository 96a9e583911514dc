"""One worker of a test: the real Worker on a fake broker, stepped manually on one thread."""

from __future__ import annotations

from collections.abc import Sequence
from queue import SimpleQueue
from typing import Any

import attrs
from attrs import frozen

from window_consumer.engine.commits.delivery_guarantee import DeliveryMode
from window_consumer.engine.engine import Engine
from window_consumer.engine.partition import Partition
from window_consumer.engine.retry.output import Production
from window_consumer.model.errors import PublishFailedError, WindowConsumerError
from window_consumer.model.outcome import Outcome
from window_consumer.model.protocols import CommitResults, Copy, Delivery
from window_consumer.model.record import TopicPartition
from window_consumer.runtime.calls.caller import Caller
from window_consumer.runtime.figures.worker_snapshot import Phase
from window_consumer.runtime.partitions.start_offsets import CommittedStartOffsets
from window_consumer.runtime.pools.inline_event_loop import InlineEventLoop
from window_consumer.runtime.topic_watch import TopicNews
from window_consumer.runtime.worker import Worker
from window_consumer.runtime.worker_setup import WorkerSetup
from window_consumer.runtime.writing.transactions import TransactionalSink
from window_consumer.testing.clock import ManualClock
from window_consumer.testing.fakes.broker import FakeBroker, FakeSink
from window_consumer.testing.fakes.source import FakeSource
from window_consumer.testing.fakes.transactions import FakeTransactions
from window_consumer.testing.inline_slots import InlineQueue, InlineSlots
from window_consumer.testing.journal import Journal


class StillClock(ManualClock):
    """A clock that ignores the worker's sleeps: only the test advances it."""

    def sleep(self, seconds: float) -> None:
        """Return at once: pauses that save work are useless here."""


RESULT_PARTITIONS = 4
"""The number of partitions of a missing result topic."""


class ResultTopics(FakeSink):
    """A Sink that creates topics of results, which are in no configuration. Owner: one thread."""

    def __init__(self, broker: FakeBroker, clock: StillClock):
        super().__init__(broker.topics, broker.fate)
        self._broker = broker
        self._clock = clock

    def refusal(self, copy: Copy) -> PublishFailedError | None:
        """Return why a copy or a result is refused; create its topic."""
        if copy.topic not in self._broker.topics.by_name:
            self._broker.create_topic(copy.topic, RESULT_PARTITIONS)
        return super().refusal(copy)

    def write(self, copy: Copy, on_delivery: Delivery) -> None:
        """Send a copy or a result; without a timestamp it gets the current time."""
        if copy.timestamp is None:
            copy = copy._replace(timestamp=self._clock.wall_ms())
        super().write(copy, on_delivery)


@frozen
class SteppedSetting:
    """Shared by the workers of a test. Owner: one thread."""

    broker: FakeBroker
    clock: StillClock
    journal: Journal


class SteppedWorker:
    """Drives one worker: its poll loop, its slots, its copies. Owner: one thread."""

    def __init__(
        self, setup: WorkerSetup, setting: SteppedSetting, state: Any, loop: InlineEventLoop
    ):
        self.name = setup.name
        self._loop = loop if setup.is_async else None
        self._setting = setting
        self._slots: InlineSlots | None = None
        self._turning = False
        self._setup = setup
        group, broker = setup.origin.group, setting.broker
        self.source = broker.source(group) if group else broker.source_of_all()
        self._sink = ResultTopics(setting.broker, setting.clock)
        own = attrs.evolve(
            setup,
            clock=setting.clock,
            jitter=lambda: 0.0,
            make_engine=self._make_engine,
            make_pool=self._make_slots,
            make_queue=lambda: InlineQueue(self._wait),
        )
        sink: FakeSink | TransactionalSink = self._sink
        self._transactions: FakeTransactions | None = None
        if setup.engine.delivery is DeliveryMode.EXACTLY_ONCE:
            transactions = FakeTransactions(self._sink, setting.broker.group(group))
            self._transactions = transactions
            sink = TransactionalSink(transactions, transactions, lambda *_: transactions)
        self._worker = Worker(own, self.source, sink, state, lambda _worker, _phase: None)
        self.loop = self._worker.loop
        self.source.subscribe(list(setup.loop.topics), self.loop.ownership)

    @property
    def group(self) -> str:
        """The worker's consumer group; empty if it reads all partitions."""
        return self._setup.origin.group

    @property
    def calling(self) -> bool:
        """Whether its handler is being called now."""
        return self._slots is not None and self._slots.calling

    @property
    def failure(self) -> BaseException | None:
        """Why it stopped by itself, else None."""
        return self.loop.failure

    # ---- its parts

    def _make_engine(self, *arguments: Any) -> Engine:
        journal, name = self._setting.journal, self.name
        find = self._setting.broker.log

        class SeenPartition(Partition):
            """A partition that reports its final outcomes to the journal."""

            def finish(self, seqs: Sequence[int], outcome: Outcome, size: int, now: float) -> None:
                offsets = [self.window.offsets.offset_of(seq) for seq in seqs]
                super().finish(seqs, outcome, size, now)
                for offset in offsets:
                    journal.of(name, find(*self.name).at(offset)).finished(outcome)

        class SeenEngine(Engine):
            """An Engine with such partitions."""

            partition_type = SeenPartition

            def on_produced(
                self,
                production: Production,
                index: int,
                error: PublishFailedError | None,
                now: float,
            ) -> None:
                handlings = [journal.of(name, message) for message in production.messages]
                if error is None:
                    journal.produced(production.results[index], handlings)
                super().on_produced(production, index, error, now)
                for handling, seq in zip(handlings, production.seqs, strict=True):
                    failed = self.failed_records.of(production.partition).get(seq)
                    if failed is not None and handling.error is None:
                        handling.calls[-1].error = failed.failure.error

        return SeenEngine(*arguments)

    def _make_slots(
        self, worker: str, _slots: int, caller: Caller, completions: SimpleQueue[Any], state: Any
    ) -> InlineSlots:
        setting = self._setting
        now = setting.clock.now
        journal = setting.journal
        self._slots = InlineSlots(worker, caller, completions, state, journal, now, self._loop)
        return self._slots

    @property
    def _engine(self) -> Engine:
        return self._worker.engine

    # ---- steps

    def step(self) -> bool:
        """Take one turn and do all resulting work; return False if nothing happened.

        Raises WorkerStoppedError if a rule stops the worker. Passes on exceptions that are not a
        handler's errors.
        """
        before = self._impression()
        self._turn()
        if self.failure is not None:
            raise self.failure
        self._work()
        return self._impression() != before

    def turn(self) -> None:
        """Take a turn during a long call, like the poll thread; it starts nothing."""
        if not self._turning:
            self._turn()

    def _turn(self) -> None:
        """Take one turn of the poll loop; store the error in ``failure`` if a rule stops it."""
        self._turning = True
        # The test may be slow; the process was not frozen.
        self.loop._freeze_detector.was_busy()  # noqa: SLF001 - the loop without its thread
        try:
            if not self._engine.appetite():
                self.loop._fetch(0, 0.0, self._setting.clock.now())  # noqa: SLF001 - as above
            self.loop._turn()  # noqa: SLF001 - as above
        except WindowConsumerError as error:
            self.loop.failure = self.loop.failure or error
        finally:
            self._turning = False

    def _work(self) -> bool:
        worked = False
        while self._slots is not None and self._slots.work():
            worked = True
        if self._sink.unanswered:
            worked = True
            self._sink.serve()
        return worked

    def _wait(self, timeout_s: float) -> None:
        """Do the work that a revoke or a stop waits for; without any, let time pass."""
        captive = self.source.in_callback or self.loop.phase is Phase.DRAINING
        if captive and not self._work():
            self._setting.clock.advance(timeout_s)

    def _impression(self) -> tuple[object, ...]:
        engine = self._engine
        return (
            attrs.astuple(engine.counters),
            tuple(self.source.held),
            [
                (each.window.open, each.window.next_offset, each.buffered, each.is_fetched)
                for each in engine.partitions.values()
            ],
            len(engine.dispatcher.out),
            len(engine.failed_records.unacked),
            self.loop.phase,
        )

    @property
    def needs_a_moment(self) -> bool:
        """Whether something continues only after a few milliseconds."""
        engine = self._engine
        all_fetched = all(each.is_fetched for each in engine.partitions.values())
        return bool(engine.dispatcher.held_back or not all_fetched)

    @property
    def owes_a_commit(self) -> bool:
        """Whether nothing can start, or is visible, before an imminent commit."""
        engine = self._engine
        written = self._transactions is not None and self._transactions.has_written
        return written or engine.suspects.awaits_commit or engine.resting.awaits_commit

    def next_event_s(self, longest_s: float) -> float:
        """Return the seconds until something falls due, at most ``longest_s``."""
        return self._engine.wait_s(self._setting.clock.now(), longest_s)

    def discover_topics(self) -> None:
        """Let it detect the current topics, as a real worker does every few seconds."""
        self._worker.deliver(TopicNews(self._setup.ask_topics()))

    # ---- the end

    def stop(self) -> None:
        """Drain, commit, leave the group; raises the worker's failure."""
        failure = self.loop.failure
        self.loop._freeze_detector.was_busy()  # noqa: SLF001 - the loop without its thread
        self.loop.stop()
        self.loop.leave()
        self.loop._run()  # noqa: SLF001 - as above
        self._sink.close(0.0)
        if self.loop.failure is not None and failure is None:
            raise self.loop.failure

    def lose_all(self) -> None:
        """Time out its session, as if others had had its partitions meanwhile."""
        starts = self.loop._parts.assignments.starts  # noqa: SLF001 - the worst case
        assert isinstance(starts, CommittedStartOffsets)
        starts.kept.remembers = False
        self._setting.broker.evict(self.source)

    def die(self) -> None:
        """End as by kill -9; the group notices at once."""
        self.source.die()
        self._setting.broker.evict(self.source)


class Rival:
    """Another member of the group, which takes partitions and does nothing with them."""

    def __init__(self, broker: FakeBroker, group: str, topics: Sequence[str]):
        self._source: FakeSource = broker.source(group)
        self._source.subscribe(topics, self)

    def step(self) -> bool:
        """Poll the group; return whether the assignment changed."""
        before = self._source.held
        self._source.poll(0, 0.0)
        return self._source.held != before

    def leave(self) -> None:
        """Give everything back."""
        self._source.close(0.0)

    def on_assigned(self, names: Sequence[TopicPartition]) -> None:
        """Start, paused."""
        self._source.start(dict.fromkeys(names))

    def on_revoked(self, names: Sequence[TopicPartition]) -> None:
        """Do nothing: no call is running."""

    def on_lost(self, names: Sequence[TopicPartition]) -> None:
        """Do nothing: no call was begun."""

    def on_committed(self, results: CommitResults) -> None:
        """Do nothing: nothing was committed."""

    def on_out_of_range(self, name: TopicPartition) -> None:
        """Do nothing: nothing is read."""

    def on_error(self, error: WindowConsumerError) -> None:
        """Do nothing: nothing depends on it."""
