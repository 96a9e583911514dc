"""Partitions whose records run one after another: how many records of each are held at a time.

The client delivers thousands of records of one partition, then thousands of the next. If each
partition is one lane, reading on while any of them lacks records keeps all lanes busy; records that
come before theirs wait here instead of in the client. Nothing is paused for this. A pause discards
all prefetched data of a partition, megabytes for the few records needed, and the refetched data
comes after that of all other partitions. With one partition nothing else can arrive, so only the
next records are read.
"""

from __future__ import annotations

from collections.abc import Collection

from attrs import frozen

from window_consumer.engine.partition import Partition
from window_consumer.engine.scheduling.dispatcher import Dispatcher


@frozen
class EnoughRules:
    """What is enough of a partition: this many records or seconds of work, whichever is more."""

    records: int = 50
    seconds: float = 0.125


class FetchDemand:
    """How many records are wanted if each partition is a lane. Owner: poll thread."""

    def __init__(self, dispatcher: Dispatcher, batch_records: int, rules: EnoughRules):
        self._dispatcher = dispatcher
        self._rules = rules
        self._batch_records = batch_records

    def appetite(self, partitions: Collection[Partition]) -> int:
        """Return how many records to request; 0 if none could be used."""
        dispatcher = self._dispatcher
        if dispatcher.is_quick:
            return dispatcher.appetite if dispatcher.hungry else 0
        reading = _reading(partitions)
        # If there is a slot for each lane, each lane has its own demand.
        if len(reading) > dispatcher.slots and not dispatcher.hungry:
            return 0
        if not partitions:
            return 1  # the first partition delivered shows how many are needed
        if dispatcher.rates is not None and dispatcher.rates.is_dry:
            return 0
        held = [partition.window.open + partition.buffered for partition in reading]
        return self._for_one(held[0]) if len(held) == 1 else self._for_many(held)

    def _for_many(self, held: Collection[int]) -> int:
        """Return how many records to read while some partition lacks them."""
        enough = max(self._rules.records, int(self._rules.seconds / self._dispatcher.cost_s))
        short = any(records < enough for records in held)
        return max(1, min(enough, self._batch_records)) if short else 0

    def _for_one(self, held: int) -> int:
        """Return how many more records of the only partition to hold: one slice beyond the running.

        They are requested when half a slice has gone.
        """
        in_slice = max(1, self._dispatcher.turn_records)
        return 0 if 2 * held > 3 * in_slice else 2 * in_slice - held


def _reading(partitions: Collection[Partition]) -> list[Partition]:
    """Return the partitions that are read: copies arrive by themselves when they are due."""
    return [
        each
        for each in partitions
        if each.is_assigned and each.is_fetched and not each.retry_level.is_copy
    ]
