"""Engines with one planted bug each in their handling of batches."""

from __future__ import annotations

from typing import Any

from window_consumer.engine.engine import Engine
from window_consumer.engine.partition import Partition
from window_consumer.engine.retry.completion import Completion
from window_consumer.engine.retry.policy import Retry, RetryGroup, Spent
from window_consumer.engine.retry.queue import RetryQueue
from window_consumer.engine.scheduling.batching import BatchDispatcher, Gathering
from window_consumer.engine.scheduling.lanes import Lane
from window_consumer.engine.scheduling.slices import Slice
from window_consumer.model.fault import Failure


class _Engine(Engine):
    """One whose parts for batches are replaced by those of a subclass."""

    dispatcher_type: type[BatchDispatcher] = BatchDispatcher
    completion_type: type[Completion] = Completion
    queue_type: type[RetryQueue] = RetryQueue

    def __init__(self, *arguments: Any):
        super().__init__(*arguments)
        self.dispatcher.__class__ = self.dispatcher_type
        self.completion.__class__ = self.completion_type
        self.retry_queue.__class__ = self.queue_type


class OwnsOnlyTheFirstLane(_Engine):
    """A batch keeps the lane of its first record busy, and forgets the others."""

    class dispatcher_type(BatchDispatcher):  # noqa: N801 - takes the place of an attribute
        def _send(self, slice_: Slice, now: float) -> None:
            super()._send(slice_, now)
            if slice_.call.attempt == 1:
                slice_.hold.keep(list(slice_.hold.lanes)[:1])


class LeavesLinesAsTheyStand(_Engine):
    """Records come in the order in which their lanes have become free."""

    class dispatcher_type(BatchDispatcher):  # noqa: N801 - takes the place of an attribute
        @staticmethod
        def _made_of(batch: Gathering, partition: Partition) -> Slice:
            return Slice(partition, batch.messages, batch.seqs, batch.bytes, batch.hold)


class WaitsUntilItIsFull(_Engine):
    """A batch that is short waits for as long as it takes."""

    class dispatcher_type(BatchDispatcher):  # noqa: N801 - takes the place of an attribute
        def _is_ready(self, batch: Gathering, _partition: Partition, _now: float) -> bool:
            return len(batch) >= self.slice_records


class LosesWhatItHasGathered(_Engine):
    """Gathered records are forgotten when nothing may start for a while."""

    class dispatcher_type(BatchDispatcher):  # noqa: N801 - takes the place of an attribute
        def release_gathered(self, partition: Partition) -> None:
            batch = self._gathered.pop(partition, None)
            if batch is not None:
                batch.hold.release()


class _Apart(RetryGroup):
    def step_of(self, lane: Lane | None, step: Retry | Spent) -> Retry | Spent:
        self._draw = (self._draw + 0.37) % 1.0
        return super().step_of(None if lane is None else object(), step)


class CallsFailedOnesApart(_Engine):
    """The failed records of a batch come back one by one, lane or not."""

    def __init__(self, *arguments: Any):
        super().__init__(*arguments)
        self.retry_queue.together = lambda: _Apart(0.0)  # type: ignore[method-assign] # a planted bug


class FinishesTheRestOfALaneThatBlocks(_Engine):
    """Records behind a failed one are done although its lane blocks."""

    class queue_type(RetryQueue):  # noqa: N801 - takes the place of an attribute
        @property
        def blocks(self) -> bool:
            return False


class CallsAllAgain(_Engine):
    """A batch of which some records failed is called again as a whole."""

    class completion_type(Completion):  # noqa: N801 - takes the place of an attribute
        def _settle(self, slice_: Slice, now: float) -> None:
            noted = slice_.deviations
            if noted is not None and noted.failed:
                failure = noted.failed[0][1]
                noted.failed = [(message, failure) for message in slice_.messages]
                noted.skipped = []
            super()._settle(slice_, now)


class FinishesAllOfABatch(_Engine):
    """A batch of which some records failed is done."""

    class completion_type(Completion):  # noqa: N801 - takes the place of an attribute
        def _settle(self, slice_: Slice, now: float) -> None:
            noted = slice_.deviations
            if noted is not None and 0 < len(noted.failed) < len(slice_.messages):
                noted.failed = []
            super()._settle(slice_, now)


class GivesUpTheFirstOfABatch(_Engine):
    """Of a batch that hangs one record leaves, the others are forgotten."""

    class completion_type(Completion):  # noqa: N801 - takes the place of an attribute
        def _abandon_batch(self, slice_: Slice, failure: Failure, now: float) -> None:
            slice_.messages, slice_.seqs = slice_.messages[:1], slice_.seqs[:1]
            super()._abandon_batch(slice_, failure, now)


class FreesTheLanesOfABatchThatHangs(_Engine):
    """The lanes of a batch that was given up are free before its call has ended."""

    class completion_type(Completion):  # noqa: N801 - takes the place of an attribute
        def _abandon_batch(self, slice_: Slice, failure: Failure, now: float) -> None:
            slice_.hold.release()
            super()._abandon_batch(slice_, failure, now)
