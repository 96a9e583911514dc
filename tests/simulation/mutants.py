"""Engines with one planted bug each, which the simulator must find."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from attrs import evolve

from window_consumer.engine.decisions import Assigned, Decisions, EngineRules, Outlived
from window_consumer.engine.engine import Engine
from window_consumer.engine.guards.backpressure import PartitionLoad
from window_consumer.engine.guards.breaker.departures import Departure
from window_consumer.engine.guards.stuck_calls import Stalled
from window_consumer.engine.offsets import DeliveredOffsets
from window_consumer.engine.ownership.epochs import Epochs
from window_consumer.engine.ownership.owned_partitions import OwnedPartitions
from window_consumer.engine.partition import Partition
from window_consumer.engine.retry.copy_record import MakeCopy
from window_consumer.engine.retry.failed_record import FailedRecord
from window_consumer.engine.retry.policy import Jitter
from window_consumer.engine.retry.retry_topics import RetryTopicLevel
from window_consumer.engine.scheduling.key_ordering import ByKey
from window_consumer.engine.scheduling.lanes import Lanes
from window_consumer.engine.scheduling.ordering import Taken
from window_consumer.engine.scheduling.rate_limit import TokenBucket
from window_consumer.engine.scheduling.record_queue import RecordRun
from window_consumer.engine.scheduling.slices import Slice
from window_consumer.model.errors import PublishFailedError
from window_consumer.model.fault import Failure
from window_consumer.model.outcome import Outcome
from window_consumer.model.protocols import Batch, Commit
from window_consumer.model.record import Message, TopicPartition


class CommitsPastAnOpenCell(Engine):
    """Delivered records are committed, finished or not."""

    def __init__(self, *arguments: Any):
        super().__init__(*arguments)
        honest = self.guarantee.commit

        def commit(partition: Partition, now: float, *, clean: bool) -> Commit | None:
            made = honest(partition, now, clean=clean)
            if made is None:
                return None
            delivered = partition.window.offsets.next_offset
            return Commit(made.name, max(made.next_offset, delivered), "")

        self.guarantee.commit = commit  # type: ignore[method-assign] # a planted bug


class ForgetsTheEpoch(Engine):
    """A late result counts for the partition's current owner."""

    def on_completion(self, slice_: Slice, now: float) -> None:
        heir = self.partitions.get(slice_.partition.name)
        if not slice_.partition.accepts_results and heir is not None:
            self.dispatcher.back(slice_)
            for seq in slice_.seqs:
                if heir.window.is_open(seq):
                    heir.finish((seq,), Outcome.DONE, 0, now)
            self.outcomes.advance(heir, now)
            return
        super().on_completion(slice_, now)


class _NobodyIsBusy(ByKey):
    def take(self, count: int) -> Taken | None:
        self.lanes.busy.clear()
        return super().take(count)


class StartsTwoOfOneLane(Engine):
    """Lanes are never busy."""

    def on_assigned(self, assignments: Iterable[Assigned], now: float) -> None:
        assignments = list(assignments)
        super().on_assigned(assignments, now)
        for each in assignments:
            if self.rules.ordering == "key":
                self.partitions[each.name].ordering = _NobodyIsBusy(Lanes())


class _WithoutHoles(DeliveredOffsets):
    __slots__ = ("first",)

    def offset_of(self, seq: int) -> int:
        return self._firsts[0] + seq if self._firsts else self.next_offset

    def forget_before(self, seq: int) -> None:
        """Nothing needs to be forgotten: offsets are counted from the first one."""


class CountsOffsetsOverHoles(Engine):
    """The n-th record after offset 7 is taken for offset 7 + n."""

    def on_assigned(self, assignments: Iterable[Assigned], now: float) -> None:
        assignments = list(assignments)
        super().on_assigned(assignments, now)
        for each in assignments:
            self.partitions[each.name].window.offsets = _WithoutHoles(each.next_offset)


class CommitsRangesOfAnotherBase(Engine):
    """The offset is new, the finished ranges are those of the commit before."""

    def __init__(self, *arguments: Any):
        super().__init__(*arguments)
        texts: dict[TopicPartition, str] = {}
        honest = self.guarantee.commit

        def commit(partition: Partition, now: float, *, clean: bool) -> Commit | None:
            made = honest(partition, now, clean=clean)
            if made is None:
                return None
            text = texts.get(made.name, made.metadata)
            texts[made.name] = made.metadata
            return Commit(made.name, made.next_offset, text)

        self.guarantee.commit = commit  # type: ignore[method-assign] # a planted bug


class DealsTheRunningRecordAgain(Engine):
    """Records taken back from a slow slice include the running one."""

    def __init__(self, *arguments: Any):
        super().__init__(*arguments)
        honest = self.dispatcher.split

        def split(slice_: Slice) -> tuple[Slice, list[Message], Sequence[int]]:
            past, unclaimed, seqs = honest(slice_)
            running = list(slice_.messages) if unclaimed else []
            return past, running + unclaimed, [*slice_.seqs[: len(running)], *seqs]

        self.dispatcher.split = split  # type: ignore[method-assign] # a planted bug


class DeadLettersBeforeTheAck(Engine):
    """A record counts as dead-lettered when its copy is sent."""

    def on_tick(self, now: float, wall_ms: float) -> Decisions:
        decisions = super().on_tick(now, wall_ms)
        for failed in decisions.publish:
            self.acks.copied(failed, None, now)
        return decisions

    def on_published(
        self, failed: FailedRecord, _error: PublishFailedError | None, _now: float
    ) -> None:
        """It has been taken for acked."""


class _ReturnsAtTheEnd(ByKey):
    def put_back(self, messages: list[Message], seqs: Sequence[int]) -> None:
        for message, seq in zip(messages, seqs, strict=True):
            self._queue.append(RecordRun.of([message], [seq]))
            self.lanes.busy.discard(message.key())


class PutsRecordsBackAtTheEnd(Engine):
    """Records taken back wait behind later ones."""

    def on_assigned(self, assignments: Iterable[Assigned], now: float) -> None:
        assignments = list(assignments)
        super().on_assigned(assignments, now)
        for each in assignments:
            if self.rules.ordering == "key":
                self.partitions[each.name].ordering = _ReturnsAtTheEnd(Lanes())


class FreesTheLaneOfAFailedRecord(Engine):
    """The lane of a record that waits for its retry continues, although it should wait."""

    def on_completion(self, slice_: Slice, now: float) -> None:
        super().on_completion(slice_, now)
        if slice_.partition.accepts_results:
            for failed in self.failed_records.of(slice_.partition).values():
                failed.hold.release()


class ForgetsWhatWasFinishedBefore(Engine):
    """The finished ranges of the last commit are not read at the start."""

    def on_assigned(self, assignments: Iterable[Assigned], now: float) -> None:
        super().on_assigned(
            [
                Assigned(each.name, each.next_offset, (), each.topic_hash, each.known_partitions)
                for each in assignments
            ],
            now,
        )


class TakesInWhateverComes(Engine):
    """Records are taken in whatever is held already."""

    def __init__(self, *arguments: Any):
        super().__init__(*arguments)

        def allows(partition: PartitionLoad, partitions: int) -> bool:
            return bool(partition) or bool(partitions)

        self.budget.allows = allows  # type: ignore[method-assign] # a planted bug
        self.budget._buffer_records = 10**6


class RunsBeforeItIsDue(Engine):
    """The clock that due times are compared with is an hour fast."""

    def on_records(self, batch: Batch, now: float, wall_ms: float) -> bool:
        return super().on_records(batch, now, wall_ms + 3_600_000)


class ForgetsARemovedLevel(Engine):
    """Records in a level that was removed from the configuration are passed over."""

    def on_records(self, batch: Batch, now: float, wall_ms: float) -> bool:
        retry_level = self.epochs._retry_levels.get(batch.name.topic)
        if (
            retry_level is None
            or retry_level.level is None
            or retry_level.level in self.rules.retry.levels
        ):
            return super().on_records(batch, now, wall_ms)
        return True


def read_no_removed_level(retry_level: RetryTopicLevel, _backlog: int | None) -> bool:
    """Read the levels that are configured, and nothing else, whatever waits elsewhere."""
    return retry_level.level is None


class LosesTheWaySoFar(Engine):
    """A copy in a retry topic is taken for a record that was never called."""

    def __init__(
        self,
        rules: EngineRules,
        jitter: Jitter,
        retry_levels: Mapping[str, RetryTopicLevel],
        make_copy: MakeCopy,
    ):
        first = {
            topic: evolve(retry_level, is_copy=False) for topic, retry_level in retry_levels.items()
        }
        super().__init__(rules, jitter, first, make_copy)


class _LanesOfItsOwn(Epochs):
    def _lanes_of(self, _siblings: Sequence[Partition], _home: TopicPartition) -> Lanes:
        return Lanes()


class KeepsLanesOfCopiesApart(Engine):
    """A copy does not wait for a record of its lane, nor the other way round."""

    def __init__(self, *arguments: Any):
        super().__init__(*arguments)
        self.epochs.__class__ = _LanesOfItsOwn


class StartsBeforeTheNameIsAcked(Engine):
    """A suspect starts when the commit that names it is sent."""

    def on_assigned(self, assignments: Iterable[Assigned], now: float) -> None:
        super().on_assigned(assignments, now)
        for case in self.suspects.cases.values():
            case.crash_history.names = lambda offset: offset >= 0  # type: ignore[method-assign] # a planted bug


class StartsWhileItRests(Engine):
    """Records of a resting partition start while its commit says that nothing is in progress."""

    def __init__(self, *arguments: Any):
        super().__init__(*arguments)
        self.resting._wake = self._wake  # type: ignore[method-assign] # the bug

    def _wake(self, partition: Partition) -> None:
        self.resting._waking[partition] = None
        partition.commit.wake()
        partition.commit.shows_use = True


class ChargesEverySuspect(Engine):
    """An unclean end is charged to all records that may have been running."""

    def on_assigned(self, assignments: Iterable[Assigned], now: float) -> None:
        super().on_assigned(
            [
                evolve(each, unclean=evolve(each.unclean, crashes=_all_charged(each)))
                if each.unclean is not None
                else each
                for each in assignments
            ],
            now,
        )


def _all_charged(assigned: Assigned) -> tuple[tuple[int, int], ...]:
    before = dict(assigned.unclean.crashes) if assigned.unclean is not None else {}
    ends = assigned.unclean.ends if assigned.unclean is not None else 0
    offsets = range(assigned.next_offset, assigned.next_offset + 20)
    return tuple((offset, max(ends, before.get(offset, 0))) for offset in offsets)


class ForgetsWhoWasNamed(Engine):
    """Unclean ends are counted, but no record is ever charged."""

    def on_assigned(self, assignments: Iterable[Assigned], now: float) -> None:
        super().on_assigned(
            [
                evolve(each, unclean=evolve(each.unclean, crashes=()))
                if each.unclean is not None
                else each
                for each in assignments
            ],
            now,
        )


class NeverHolds(Engine):
    """Records leave whatever share of the calls fails."""

    def __init__(self, *arguments: Any):
        super().__init__(*arguments)
        self.breaker.departure = lambda *_, **__: Departure.LEAVE  # type: ignore[method-assign] # a planted bug
        self.breaker._judge = lambda now: None  # type: ignore[method-assign] # noqa: ARG005 - as above


class TakesRetriesForNews(Engine):
    """The breaker counts all calls, and bad records make several each."""

    def __init__(self, *arguments: Any):
        super().__init__(*arguments)
        failed, returned = self.breaker.failed, self.breaker.returned
        self.breaker.failed = lambda *args, **_: failed(*args)  # type: ignore[method-assign] # a planted bug
        self.breaker.returned = lambda *args, **_: returned(*args)  # type: ignore[method-assign] # as above


class CountsTheResultOfAnAbandonedCall(Engine):
    """A call that was given up finishes its record when it returns after all."""

    def on_completion(self, slice_: Slice, now: float) -> None:
        given_up = slice_ in self.dispatcher.abandoned
        super().on_completion(slice_, now)
        partition = slice_.partition
        if given_up and partition.accepts_results and partition.window.is_open(slice_.seqs[0]):
            partition.finish(slice_.seqs, Outcome.DONE, slice_.bytes, now)


class FreesTheLaneOfAnAbandonedCall(Engine):
    """The lane of a record that was given up continues while the thread still runs."""

    def on_looked_at(self, stalled: Stalled, failure: Failure | None, now: float) -> None:
        super().on_looked_at(stalled, failure, now)
        if stalled.slice_ in self.dispatcher.abandoned:
            stalled.slice_.hold.release()


class _EndsOutlivedCalls(OwnedPartitions):
    def lose(self, names: Iterable[TopicPartition], now: float) -> list[Outlived]:
        found = super().lose(names, now)
        for call in self._parts.outlived.calls:
            call.end()
            self._parts.outlived.ended(call.slice_)
        return found


class FreesTheLaneOfAnOutlivedCall(Engine):
    """The lane of a call that outlived its partition continues when the partition comes back."""

    def __init__(self, *arguments: Any):
        super().__init__(*arguments)
        self.owned.__class__ = _EndsOutlivedCalls


class FreesTheLaneOfACallThatIsEnding(Engine):
    """Takes a call that was told to end for one that has."""

    def on_looked_at(self, stalled: Stalled, failure: Failure | None, now: float) -> None:
        super().on_looked_at(stalled, failure, now)
        partition = stalled.slice_.partition
        if stalled.end and failure is not None and partition.accepts_results:
            stalled.slice_.hold.release()
            self.dispatcher.wake(partition)


class AbandonsAnyNumberOfCalls(Engine):
    """Threads are replaced without end."""

    def __init__(self, rules: EngineRules, *arguments: Any):
        super().__init__(evolve(rules, stall=evolve(rules.stall, max_abandoned=10**6)), *arguments)


class FillsUpWhileRecordsWaitForSlots(Engine):
    """A bucket fills up to its burst, whatever was charged and has not started."""

    def __init__(self, *arguments: Any):
        super().__init__(*arguments)
        if self.rates is not None:
            self.rates.bucket_type = _EagerBucket


class _EagerBucket(TokenBucket):
    __slots__ = ()

    def fill(self, now: float) -> None:
        charged, self.charged = self.charged, 0
        super().fill(now)
        self.charged = charged


class ChargesNoRetries(Engine):
    """Repeated calls need no token."""

    def __init__(self, *arguments: Any):
        super().__init__(*arguments)
        self.failed_records.ready.rates = None
        if self.rates is not None:
            charge = self.rates.charge
            honest = self.dispatcher.again

            def again(records: Sequence[FailedRecord], now: float) -> Slice:
                assert self.rates is not None
                self.rates.charge = lambda *_: None  # type: ignore[method-assign] # a planted bug
                try:
                    return honest(records, now)
                finally:
                    self.rates.charge = charge  # type: ignore[method-assign] # as it was

            self.dispatcher.again = again  # type: ignore[method-assign] # a planted bug


class HandsOutBeyondTheLimit(Engine):
    """The limit is computed but not obeyed."""

    def on_tick(self, now: float, wall_ms: float) -> Decisions:
        self.dispatcher.slots = self.rules.slots
        return super().on_tick(now, wall_ms)


class LeavesPartitionsPaused(Engine):
    """A partition that has taken in as much as it may is paused, and stays so."""

    def __init__(self, *arguments: Any):
        super().__init__(*arguments)

        def never(_partition: Partition, _partitions: object) -> bool:
            return False

        self.budget.should_resume = never  # type: ignore[method-assign, assignment] # a planted bug


class WaitsHalfAsLong(Engine):
    """A failed record is called again before its backoff is over."""

    def __init__(self, rules: EngineRules, _jitter: Jitter, *others: Any):
        super().__init__(rules, lambda: 2.0, *others)
