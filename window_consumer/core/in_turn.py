"""Partitions whose records run one after another: how much of each is held at a time.

The client hands out what it has fetched, thousands of records of one partition and then thousands
of the next. Where each partition is one lane, whoever reads on until the last of them has something
to do holds all that came before, for as long as it takes, one record at a time. So a partition of
which enough is held is paused while another one runs out. A pause throws away what was prefetched,
and going on fetches it anew, so enough is never just a few records. With one partition nothing else
can come, and only what is next is fetched.
"""

from __future__ import annotations

from collections.abc import Collection

from attrs import frozen

from window_consumer.core.dispatcher import Dispatcher
from window_consumer.core.partition import Partition

GO_ON = 0.5
"""A paused partition goes on when so much of what is enough is left: fetching takes time ..."""

SCARCE = 0.25
"""... and it waits for records, as others do, with less than this."""

PORTION = 0.25
"""So much of it is asked for in one go: whose records will come is not known."""


@frozen
class EnoughRules:
    """What is enough of a partition while another one waits: so many records, or seconds of work.

    Whichever is more. A megabyte or two is fetched in vain each time that a partition is paused.
    """

    records: int = 200
    seconds: float = 0.5


class InTurn:
    """Says whose records are wanted where each partition is a lane. Owner: poll thread."""

    def __init__(self, dispatcher: Dispatcher, batch_records: int, rules: EnoughRules):
        self._dispatcher = dispatcher
        self._rules = rules
        self._batch_records = batch_records

    @property
    def _enough(self) -> int | None:
        """How many records of a partition are enough; None where calls are quick.

        A few before the first call has returned: all would be read while that takes.
        """
        if not self._dispatcher.knows_cost:
            return self._rules.records
        if self._dispatcher.is_quick:
            return None
        return max(self._rules.records, int(self._rules.seconds / self._dispatcher.cost_s))

    def appetite(self, partitions: Collection[Partition]) -> int:
        """Return how many records to ask for, 0 while no partition is short of them."""
        enough = self._enough
        if enough is None:
            return self._dispatcher.appetite
        reading = _reading(partitions)
        if len(reading) == 1:
            return self._for_one(_held(reading[0]))
        if not partitions:
            return 1  # whose records come first shows how many are needed
        if not any(_is_scarce(partition, enough) for partition in reading):
            return 0
        return max(1, min(int(enough * PORTION), self._batch_records))

    def _for_one(self, held: int) -> int:
        """Return how many more records to hold of the only one: another slice than that which runs.

        They are asked for when half of one has gone.
        """
        in_slice = max(1, self._dispatcher.turn_records)
        return 0 if 2 * held > 3 * in_slice else 2 * in_slice - held

    def has_enough(self, partition: Partition) -> bool:
        """Tell whether a partition is read that holds enough; others may wait for records."""
        enough = self._enough
        return enough is not None and not partition.rung.is_copy and _held(partition) >= enough

    def should_pause(self, partition: Partition, partitions: Collection[Partition]) -> bool:
        """Tell whether a partition holds enough while another one runs out of records."""
        if partition.paused or not self.has_enough(partition) or not self._dispatcher.hungry:
            return False
        enough = self._enough or 0
        return any(_is_scarce(other, enough) for other in _reading(partitions))

    def may_resume(self, partition: Partition) -> bool:
        """Tell whether a paused partition holds little enough to go on."""
        enough = self._enough
        return enough is None or partition.rung.is_copy or _held(partition) <= enough * GO_ON


def _held(partition: Partition) -> int:
    return partition.window.open + partition.buffered


def _is_scarce(partition: Partition, enough: int) -> bool:
    return _held(partition) < enough * SCARCE


def _reading(partitions: Collection[Partition]) -> list[Partition]:
    """Return those that are read: copies come by themselves when they are due."""
    return [each for each in partitions if not (each.rung.is_copy or each.paused or each.closing)]
