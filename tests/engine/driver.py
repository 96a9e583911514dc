"""Drives an Engine by hand: every test of the engine goes through it.

What a test asks of the engine's inside has a name here, so that only this file knows where records
lie. Events of the Engine's own interface (``on_revoking``, ``on_halted`` ...) are called directly.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import Any

from tests.engine.support import ORDERS, Note, failure
from window_consumer.engine.commits.delivery_guarantee import MakeGuarantee
from window_consumer.engine.commits.start_offset import Found, resolve
from window_consumer.engine.decisions import Assigned, Decisions, EngineRules
from window_consumer.engine.engine import Engine
from window_consumer.engine.retry.copy_record import CopyMaker, CopyOrigin, Target
from window_consumer.engine.retry.failed_record import FailedRecord
from window_consumer.engine.retry.record_state import RecordState
from window_consumer.engine.retry.retry_topics import Level, RetryTopicLevel
from window_consumer.engine.scheduling.concurrency.adaptive_concurrency import LimitCause
from window_consumer.engine.scheduling.slices import Slice
from window_consumer.engine.snapshot import take_snapshot
from window_consumer.engine.turn import TurnRule
from window_consumer.engine.windows_snapshot import WindowsSnapshot
from window_consumer.model.errors import PublishFailedError
from window_consumer.model.fault import Failure
from window_consumer.model.protocols import Batch, CommittedOffset
from window_consumer.model.record import TopicPartition


def _target(source: str, level: Level | None) -> Target:
    return Target(f"g.{source}.dlq" if level is None else f"g.{source}.retry.{level.name}", 1, 1)


def role_of(topic: str) -> RetryTopicLevel:
    """Return the role of a source topic."""
    return RetryTopicLevel(topic)


COPIES = CopyMaker(CopyOrigin("g", "charge"), _target)
NO_LEVELS: Mapping[str, RetryTopicLevel] = MappingProxyType({})


class Driven:
    """An Engine, its clock, and the slots' part played by hand."""

    wall_clock_runs = False
    """Wall time passes with the clock."""

    lets_rest = False
    """Retry topics rest, and wait for their commits when something may start."""

    def __init__(
        self,
        start: int = 0,
        names: Iterable[TopicPartition] = (ORDERS,),
        turns: Iterable[TurnRule] = (),
        guarantee: MakeGuarantee | None = None,
        **rules: Any,
    ):
        given = {"slots": 4, **rules}
        self.engine = self.make(EngineRules(**given), guarantee=guarantee)
        self.engine.decide_turns(turns)
        self.now = 1000.0
        self.wall_ms = 1_700_000_000_000.0
        self.out: list[Slice] = []
        self.last = Decisions()
        self.assign(*names, start=start)

    @staticmethod
    def make(
        rules: EngineRules,
        retry_levels: Mapping[str, RetryTopicLevel] = NO_LEVELS,
        guarantee: MakeGuarantee | None = None,
    ) -> Engine:
        """Make an Engine whose copies go to dead-letter topics and levels of one partition."""
        return Engine(rules, lambda: 0.0, retry_levels, COPIES.copy, guarantee)

    def assign(self, *names: TopicPartition, start: int = 0, **fields: Any) -> None:
        """Assign partitions that begin there; ``fields`` are further facts about each."""
        given = {"committed": (start, ""), **fields}
        assigned = [Assigned(name, start, **given) for name in names]
        self.engine.on_assigned(assigned, self.now)
        self.keep_in_use()

    def start_from(self, name: TopicPartition, committed: CommittedOffset, end: int) -> int:
        """Assign a partition as its last commit says; return the first offset to read."""
        found = Found(name, committed, (0, end), keeps_finished=True)
        assigned = resolve(found, "earliest").assigned
        self.engine.on_assigned([assigned], self.now)
        return assigned.next_offset

    def deliver(self, *messages: Any, name: TopicPartition = ORDERS) -> None:
        for message in messages:
            if isinstance(message, Note):
                message.belong_to(name)
        self.engine.on_records(Batch.of(name, list(messages)), self.now, self.wall_ms)

    def tick(self, seconds: float = 0.0) -> Decisions:
        self.now += seconds
        self.wall_ms += seconds * 1000 if self.wall_clock_runs else 0
        self.keep_in_use()
        self.last = self.engine.on_tick(self.now, self.wall_ms)
        self.out.extend(self.last.dispatch)
        return self.last

    def keep_in_use(self) -> None:
        """Let the copies of retry topics start without a commit that says so."""
        for partition in self.engine.partitions.values():
            if partition.rests and not self.lets_rest:
                self.engine.resting.remove(partition)
                partition.commit.rests = False
                self.engine.dispatcher.wake(partition)

    def claim(self, slice_: Slice, count: int | None = None) -> list[Any]:
        """Let a slot claim records, as its loop does."""
        slice_.started = slice_.started or self.now
        claimed: list[Any] = []
        while count is None or len(claimed) < count:
            message = next(slice_.unclaimed, None)
            if message is None:
                break
            claimed.append(message)
        return claimed

    def finish(self, slice_: Slice, elapsed: float = 0.001) -> None:
        """Let a slot run the rest of a slice successfully and report it."""
        self.claim(slice_)
        slice_.elapsed = elapsed
        self.out.remove(slice_)
        self.engine.on_completion(slice_, self.now)

    def fail(
        self,
        slice_: Slice,
        *offsets: int,
        error: BaseException | None = None,
        elapsed: float = 0.001,
    ) -> None:
        """Like ``finish``, but these records' handler raised."""
        for message in self.claim(slice_):
            if message.offset() in offsets:
                slice_.deviate().failed.append((message, failure(error)))
        self.finish(slice_, elapsed)

    def snapshot(self, *, cells: bool = True) -> WindowsSnapshot:
        """Take the snapshot that page, ``top``, doctor and metrics read."""
        return take_snapshot(self.engine, self.now, self.wall_ms, cells=cells)

    def limit_changed(self, cause: str, times: int) -> None:
        """Change the number of slots, for this cause."""
        self.engine.counters.limit_changes[LimitCause(cause)] += times

    def finish_all(self) -> None:
        while self.out:
            for slice_ in list(self.out):
                self.finish(slice_)
            self.tick()

    @property
    def running_offsets(self) -> list[int]:
        return sorted(m.offset() for slice_ in self.out for m in slice_.messages)

    @property
    def committable(self) -> int:
        return self.engine.partitions[ORDERS].window.next_offset

    # ---- records that left the normal path

    def failing(self, name: TopicPartition = ORDERS) -> list[FailedRecord]:
        """Return the failed records of a partition without an outcome, in order of failure."""
        return list(self.engine.failed_records.of(self.engine.partitions[name]).values())

    def failing_offsets(self, name: TopicPartition = ORDERS) -> list[int]:
        return sorted(failed.message.offset() for failed in self.failing(name))

    def held_offsets(self, name: TopicPartition = ORDERS) -> list[int]:
        """Return the failed records whose next call waits for their partition."""
        held = self.engine.failed_records.held(self.engine.partitions[name])
        return [failed.message.offset() for failed in held]

    @property
    def unacked(self) -> int:
        """How many copies the broker has not answered."""
        return len(self.engine.failed_records.unacked)

    @property
    def unacked_bytes(self) -> int:
        """The bytes of all results that the broker has not answered."""
        return self.engine.output.bytes

    @unacked_bytes.setter
    def unacked_bytes(self, size: int) -> None:
        self.engine.output.bytes = size

    @property
    def last_published(self) -> list[FailedRecord]:
        """The records whose copies were sent in the last tick."""
        return self.last.publish

    def published(self, seconds: float = 0.0) -> list[FailedRecord]:
        """Return the records whose copies are sent in the next tick."""
        self.tick(seconds)
        return self.last_published

    def published_one(self, seconds: float = 0.0) -> FailedRecord:
        """Return the one record whose copy is sent in the next tick."""
        (failed,) = self.published(seconds)
        return failed

    def copied(self, failed: FailedRecord, error: PublishFailedError | None = None) -> None:
        """Let the broker answer for a copy."""
        self.engine.on_published(failed, error, self.now)

    def take_news(self) -> list[FailedRecord]:
        """Return the calls that failed since the last tick."""
        return self.engine.outcomes.take_news()

    def take_back(self, slice_: Slice) -> int:
        """Take the unclaimed records of a slice back; return how many there were."""
        return self.engine.completion.take_back(slice_, self.now)

    def call_again(self, *offsets: int) -> Slice:
        """Dispatch failed records in one slice, whatever they wait for."""
        records = [each for each in self.failing() if each.message.offset() in offsets]
        for failed in records:
            assert failed.state is RecordState.WAITING
            self.engine.failed_records.move(failed, RecordState.READY)
        self.engine.failed_records.start(records)
        slice_ = self.engine.dispatcher.again(records, self.now)
        self.out.append(slice_)
        return slice_

    def crash(self, message: Any, failure: Failure, times: int) -> None:
        """Let a record leave that ended the process."""
        partition, seq = self.engine.partitions[ORDERS], 0
        self.engine.outcomes.crashed(partition, message, seq, failure, times, self.now)
