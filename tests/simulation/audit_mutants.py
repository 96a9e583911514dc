"""Audits of consumers with one planted bug each."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import count
from typing import Any

from window_consumer.audit.consumer import ConsumerAudit
from window_consumer.audit.pending import BucketStretch, PendingCounts
from window_consumer.audit.sums import SumsByBucket
from window_consumer.engine.partition import Partition
from window_consumer.engine.retry.failed_record import FailedRecord
from window_consumer.model.offset_ranges import united
from window_consumer.model.outcome import Outcome
from window_consumer.model.protocols import Commit

Rows = Sequence[Mapping[str, Any]]


class WritesWithTheNextCommit(ConsumerAudit):
    """The counts of a commit are written after it was sent."""

    def __init__(self, *arguments: Any):
        super().__init__(*arguments)
        self._waiting: Rows = ()
        write = self._write_rows

        def write_later(rows: Rows) -> None:
            write(self._waiting)
            self._waiting = rows

        self._write_rows = write_later


class NothingRunsAgain(ConsumerAudit):
    """Counts do not name their offsets."""

    def __init__(self, *arguments: Any):
        super().__init__(*arguments)
        write = self._write_rows
        self._write_rows = lambda rows: write([{**row, "offsets": ()} for row in rows])


class AllEpochsAreOne(ConsumerAudit):
    """A later assignment's count of an offset replaces nothing."""

    def __init__(self, *arguments: Any):
        super().__init__(*arguments)
        write = self._write_rows
        self._write_rows = lambda rows: write([{**row, "epoch_ms": 0} for row in rows])


_epochs = count(1)
"""Of all members together: each count is later than all before it."""


class CountsAsOfTheCommit(ConsumerAudit):
    """The last count replaces earlier ones, whichever assignment is later."""

    def __init__(self, *arguments: Any):
        super().__init__(*arguments)
        write = self._write_rows

        def as_of_now(rows: Rows) -> None:
            epoch_ms = next(_epochs)
            write([{**row, "epoch_ms": epoch_ms} for row in rows])

        self._write_rows = as_of_now


class CountsInOneStretch(ConsumerAudit):
    """All that a commit covers is counted together."""

    def _write(self, partition: Partition, tenure: Any, stretches: Sequence[BucketStretch]) -> None:
        offsets = united(each for stretch in stretches for each in stretch.offsets)
        all_sums: dict[Any, Any] = {}
        for stretch in stretches:
            for key, sums in stretch.sums.items():
                if key not in all_sums:
                    all_sums[key] = sums
                    continue
                into = all_sums[key]
                into.count += sums.count
                into.bytes += sums.bytes
                into.id_xor ^= sums.id_xor
                into.id_sum += sums.id_sum
        together = SumsByBucket(self._rules.bucket_ms)
        together.update(all_sums)
        super()._write(partition, tenure, [BucketStretch(offsets, together)])


class CountsOnlyWhatSlides(ConsumerAudit):
    """Finished ranges beyond next_offset are counted when the window has passed them."""

    def assigned(self, partition: Partition, now: float) -> None:
        super().assigned(partition, now)
        tenure = self._tenures[partition]
        pending = tenure.pending

        class Short(PendingCounts):
            def cover(self, next_offset: int, _finished: Iterable[range]) -> list[BucketStretch]:
                return super().cover(next_offset, ())

        pending.__class__ = Short


class ForgetsWhoLeft(ConsumerAudit):
    """Only records whose handler returned are counted."""

    def left(self, failed: FailedRecord, outcome: Outcome, now: float) -> None:
        pass


class LeavesGatheredRecordsForLater(ConsumerAudit):
    """Records gathered when a commit is made are counted with a later one."""

    def committing(self, partition: Partition, commit: Commit, now: float) -> None:
        tenure = self._tenures[partition]
        messages, walls_ms = tenure.gathered.all()
        super().committing(partition, commit, now)
        for message, wall_ms in zip(messages, walls_ms, strict=True):
            tenure.gathered.take((message,), wall_ms)


class KeepsWhatWasGivenUp(ConsumerAudit):
    """Records that no commit has covered are counted when their partition goes."""

    def given_up(self, partition: Partition, now: float) -> None:
        tenure = self._tenures[partition]
        self._add_gathered(tenure, partition)
        end = partition.window.offsets.next_offset
        self._write(partition, tenure, tenure.pending.cover(end, ()))
        super().given_up(partition, now)


class CountsOneTooManyAsGone(ConsumerAudit):
    """The first record that is left is counted as gone, too."""

    def gone(self, partition: Partition, offsets: Sequence[range], now: float) -> None:
        super().gone(partition, [range(each.start, each.stop + 1) for each in offsets], now)
