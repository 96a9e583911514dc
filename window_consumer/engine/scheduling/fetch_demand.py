"""Partitions whose records run one after another: how much of each is held at a time.

The client hands out what it has fetched, thousands of records of one partition and then thousands
of the next. Where each partition is one lane, reading on while any of them is short of records
keeps all lanes busy; what comes before theirs waits here instead of in the client. Nothing is
paused for that: a pause throws away all that was prefetched of a partition, megabytes for the few
records that are needed, and what is fetched anew comes behind everybody else's. With one partition
nothing else can come, and only what is next is read.
"""

from __future__ import annotations

from collections.abc import Collection

from attrs import frozen

from window_consumer.engine.partition import Partition
from window_consumer.engine.scheduling.dispatcher import Dispatcher


@frozen
class EnoughRules:
    """What is enough of a partition: so many records, or seconds of work, whichever is more."""

    records: int = 50
    seconds: float = 0.125


class FetchDemand:
    """Says how many records are wanted where each partition is a lane. Owner: poll thread."""

    def __init__(self, dispatcher: Dispatcher, batch_records: int, rules: EnoughRules):
        self._dispatcher = dispatcher
        self._rules = rules
        self._batch_records = batch_records

    def appetite(self, partitions: Collection[Partition]) -> int:
        """Return how many records to ask for, 0 while none could be put to use."""
        dispatcher = self._dispatcher
        if dispatcher.is_quick:
            return dispatcher.appetite if dispatcher.hungry else 0
        reading = _reading(partitions)
        # Where there is a slot for each lane it is the lanes that want something, each for itself.
        if len(reading) > dispatcher.slots and not dispatcher.hungry:
            return 0
        if not partitions:
            return 1  # whose records come first shows how many are needed
        if dispatcher.rates is not None and dispatcher.rates.is_dry:
            return 0
        held = [partition.window.open + partition.buffered for partition in reading]
        return self._for_one(held[0]) if len(held) == 1 else self._for_many(held)

    def _for_many(self, held: Collection[int]) -> int:
        """Return how many records to read while a partition is short of them."""
        enough = max(self._rules.records, int(self._rules.seconds / self._dispatcher.cost_s))
        short = any(records < enough for records in held)
        return max(1, min(enough, self._batch_records)) if short else 0

    def _for_one(self, held: int) -> int:
        """Return how many more records to hold of the only one: another slice than that which runs.

        They are asked for when half of one has gone.
        """
        in_slice = max(1, self._dispatcher.turn_records)
        return 0 if 2 * held > 3 * in_slice else 2 * in_slice - held


def _reading(partitions: Collection[Partition]) -> list[Partition]:
    """Return those that are read: copies come by themselves when they are due."""
    return [
        each
        for each in partitions
        if each.is_active and not (each.retry_level.is_copy or each.paused)
    ]
