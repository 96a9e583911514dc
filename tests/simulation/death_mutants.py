"""Engines with one planted bug each in their reaction to the death of a slot's process."""

from __future__ import annotations

from typing import Any

from window_consumer.engine.engine import Engine
from window_consumer.engine.partition import Partition
from window_consumer.engine.retry.completion import Completion
from window_consumer.engine.retry.failed_record import FailedRecord
from window_consumer.engine.retry.queue import RetryQueue
from window_consumer.engine.scheduling.batch_bisection import BatchBisection, BatchHalf, died_on
from window_consumer.engine.scheduling.batching import BatchDispatcher
from window_consumer.engine.scheduling.slices import Slice
from window_consumer.model.errors import ProcessDiedError
from window_consumer.model.fault import Failure


class _Engine(Engine):
    """One whose parts are replaced by those of a subclass."""

    bisection_type: type[BatchBisection] = BatchBisection
    completion_type: type[Completion] = Completion
    queue_type: type[RetryQueue] = RetryQueue

    def __init__(self, *arguments: Any):
        super().__init__(*arguments)
        self.completion.__class__ = self.completion_type
        self.retry_queue.__class__ = self.queue_type
        if isinstance(self.dispatcher, BatchDispatcher):
            self.dispatcher._bisection.__class__ = self.bisection_type


def died(slice_: Slice) -> bool:
    noted = slice_.deviations
    return noted is not None and any(
        type(failure.error) is ProcessDiedError for _, failure in noted.failed
    )


class ChargesAllOfABatch(_Engine):
    """Each record of a batch that ended its process is charged."""

    class completion_type(Completion):  # noqa: N801 - takes the place of an attribute
        def _settle(self, slice_: Slice, now: float) -> None:
            slice_.is_batch = slice_.is_batch and not died_on(slice_)
            super()._settle(slice_, now)


class ChargesNobody(_Engine):
    """A record that ends processes is called for ever."""

    class queue_type(RetryQueue):  # noqa: N801 - takes the place of an attribute
        def add(self, *arguments: Any, **named: Any) -> FailedRecord:
            partition, _, seq, *_ = arguments
            known = self.records.of(partition).get(seq)
            if known is not None:
                known.deaths = -1
            return super().add(*arguments, **named)


class ForgetsTheSecondHalf(_Engine):
    """Only the first half of a batch goes out again."""

    class bisection_type(BatchBisection):  # noqa: N801 - takes the place of an attribute
        def bisect(self, slice_: Slice) -> None:
            super().bisect(slice_)
            waiting = self._waiting[slice_.partition]
            waiting.pop(1).hold.release()


class StartsBothHalvesOfALane(_Engine):
    """The second half of a lane does not wait for the first one."""

    class bisection_type(BatchBisection):  # noqa: N801 - takes the place of an attribute
        def bisect(self, slice_: Slice) -> None:
            super().bisect(slice_)
            self._waiting[slice_.partition] = [
                BatchHalf(half.partition, half.messages, half.seqs, half.hold, half.again)
                for half in self._waiting[slice_.partition]
            ]


class FreesTheLanesOfHalves(_Engine):
    """The lanes of halves that wait may be entered."""

    class bisection_type(BatchBisection):  # noqa: N801 - takes the place of an attribute
        def bisect(self, slice_: Slice) -> None:
            super().bisect(slice_)
            for half in self._waiting[slice_.partition]:
                half.hold.release()


class ForgetsHalvesThatArePutBack(_Engine):
    """Records that wait in halves are lost when nothing may start for a while."""

    class bisection_type(BatchBisection):  # noqa: N801 - takes the place of an attribute
        def dissolve(self, partition: Partition) -> None:
            for half in self._waiting.pop(partition, ()):
                half.hold.release()


class ForgetsWhatWasNotBegun(_Engine):
    """Records that a dead process had not begun are not dealt again."""

    class completion_type(Completion):  # noqa: N801 - takes the place of an attribute
        def _settle(self, slice_: Slice, now: float) -> None:
            if died(slice_):
                slice_.deviate().held, held = [], slice_.deviate().held
                lost = {id(message) for message in held}
                kept = [n for n, each in enumerate(slice_.messages) if id(each) not in lost]
                slice_.seqs = [slice_.seqs[n] for n in kept]
                slice_.messages = [slice_.messages[n] for n in kept]
            super()._settle(slice_, now)


class CountsTheRecordThatItDiedOn(_Engine):
    """The record that a dead process was on counts as done."""

    class completion_type(Completion):  # noqa: N801 - takes the place of an attribute
        def _settle(self, slice_: Slice, now: float) -> None:
            if died(slice_) and not died_on(slice_):
                noted = slice_.deviate()
                noted.failed = [
                    each for each in noted.failed if type(each[1].error) is not ProcessDiedError
                ]
            super()._settle(slice_, now)


class ChargesWhatWasNotBegun(_Engine):
    """Records that a dead process had not begun fail with the one that it was on."""

    class completion_type(Completion):  # noqa: N801 - takes the place of an attribute
        def _settle(self, slice_: Slice, now: float) -> None:
            if died(slice_) and not slice_.is_batch:
                noted = slice_.deviate()
                failure: Failure = noted.failed[-1][1]
                noted.failed += [(message, failure) for message in noted.held]
                noted.held = []
            super()._settle(slice_, now)
