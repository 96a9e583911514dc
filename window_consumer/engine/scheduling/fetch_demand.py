"""How much the poll thread must bring: records that the slots take next, and their results.

Partitions whose records run one after another have their own demand. The client delivers thousands
of records of one partition, then thousands of the next. If each partition is one lane, reading on
while any of them lacks records keeps all lanes busy; records that come before theirs wait here
instead of in the client. No partition is paused for this: a pause discards all prefetched data of a
partition, megabytes for the few records needed, and the refetched data comes after that of all
other partitions. With one partition, no other records can arrive, so only the next ones are read.
"""

from __future__ import annotations

from collections.abc import Collection

from attrs import frozen

from window_consumer.engine.guards.backpressure import MemoryBudget
from window_consumer.engine.guards.circuit_breaker import CircuitBreaker
from window_consumer.engine.partition import Partition
from window_consumer.engine.scheduling.batching import BatchDispatcher
from window_consumer.engine.scheduling.dispatcher import SLICES_PER_SLOT, Dispatcher
from window_consumer.engine.scheduling.slice_length import SHARED_QUEUED

AHEAD_S = 0.01
"""How much work may wait for the slots. With more, records wait here longer than they run: with
6,000 records of 10 ms and 16 slots, the last record waited 4 s, and a stop left the rest to be
fetched again."""

LEFT_S = 0.006
"""How much of AHEAD_S is left when more is fetched: a request for each record costs more than the
record."""

LONG_CALL_S = 0.1
"""If a call takes longer than this, no record needs to wait behind it: fetching the next one takes
negligible time in comparison."""

REST_S = 0.001
"""How long results may wait while the slots have enough queued. Reading twenty at once takes the
interpreter lock once, not twenty times."""

REST_QUEUED = 0.5
"""How many queued slices per slot are enough for a rest, if each takes four times REST_S."""

LONGEST_REST_S = 0.005
"""If a slice takes longer still, results wait an eighth of its duration, at most this long. With a
thousand concurrent calls, reading results a thousand times a second costs more than all other
work."""


class FetchDemand:
    """The records that the slots need next. Owner: poll thread."""

    def __init__(self, dispatcher: Dispatcher, breaker: CircuitBreaker, batch_records: int):
        self._dispatcher = dispatcher
        self._breaker = breaker
        self._batch_records = batch_records

    def appetite(
        self, partitions: Collection[Partition], budget: MemoryBudget, *, for_copies: bool
    ) -> int:
        """Return how many records to request now, see ``Engine.appetite``."""
        expects_copies = for_copies and any(
            each.retry_level.is_copy and each.is_fetched for each in partitions
        )
        wanted = self.records(partitions)
        if not (wanted or expects_copies) or (partitions and not budget.wanted(partitions)):
            return 0
        most = budget.batch_records()
        return most if expects_copies else min(most, wanted)

    def records(self, partitions: Collection[Partition]) -> int:  # noqa: ARG002 - in turn they count
        """Return how many records to request at once; 0 if enough are waiting.

        If the breaker counts calls, windows are filled in any case: healthy records may be behind
        bad ones.
        """
        dispatcher = self._dispatcher
        if self._breaker.counts_calls:
            return self._batch_records
        if dispatcher.full or dispatcher.is_dry:
            return 0
        length, slots = dispatcher.length, dispatcher.slots
        if length.is_quick:
            enough = min(slots * SLICES_PER_SLOT * length.records, self._batch_records)
            if dispatcher.new.startable >= enough:
                return 0
            # Another slice per slot is on its way and queued, so request twice as much at once.
            return min(int(slots * 2 * AHEAD_S / length.cost_s), self._batch_records)
        supply = dispatcher.records_out + dispatcher.new.startable - slots
        if supply >= self._ahead(LEFT_S):
            return 0
        return max(1, min(self._ahead(AHEAD_S) - supply, self._batch_records))

    def _ahead(self, seconds: float) -> int:
        """Return how many records the slots begin within ``seconds``, beyond one for each slot.

        This includes the other records of running slices. Unless calls take very long, at least one
        record is ready.
        """
        length, slots = self._dispatcher.length, self._dispatcher.slots
        most = length.most_shared(slots)
        in_slices = slots * (max(length.records, most) - 1)
        if most > 1:
            # Without a stock of long slices, short ones would replace those that return.
            in_slices += int(slots * most * 2 * SHARED_QUEUED)
        begun = int(slots * seconds / length.cost_s)
        return in_slices + max(length.cost_s < LONG_CALL_S, begun)

    @property
    def rest_s(self) -> float:
        """How long reading results would achieve nothing; 0 if it may help now."""
        dispatcher = self._dispatcher
        queued = len(dispatcher.out) - dispatcher.slots
        shared = dispatcher.shared
        slice_s = dispatcher.length.cost_s * max(dispatcher.length.records, shared)
        enough = REST_QUEUED if shared <= 1 else SHARED_QUEUED
        if queued < dispatcher.slots * enough or slice_s < 4 * REST_S:
            return 0.0
        return min(LONGEST_REST_S, max(REST_S, slice_s / 8))


class FullDemand(FetchDemand):
    """The demand for records in classes: the next one of a class may be behind many of another."""

    def records(self, partitions: Collection[Partition]) -> int:  # noqa: ARG002 - as above
        """Return how many records to request at once: windows are filled."""
        return self._batch_records


class BatchDemand(FetchDemand):
    """The demand for batches: as many records as possible while a batch lacks some."""

    _dispatcher: BatchDispatcher

    def records(self, partitions: Collection[Partition]) -> int:  # noqa: ARG002 - as above
        """Return how many records to request at once; 0 if no batch lacks any."""
        dispatcher = self._dispatcher
        is_wanted = self._breaker.counts_calls or not (
            dispatcher.full or dispatcher.is_dry or dispatcher.has_enough
        )
        return self._batch_records if is_wanted else 0


@frozen
class EnoughRules:
    """Enough of a partition: this many records or seconds of work, whichever is more."""

    records: int = 50
    seconds: float = 0.125


class InTurnDemand(FetchDemand):
    """The demand of partitions whose records run one after another."""

    def __init__(
        self,
        dispatcher: Dispatcher,
        breaker: CircuitBreaker,
        batch_records: int,
        rules: EnoughRules,
    ):
        super().__init__(dispatcher, breaker, batch_records)
        self._rules = rules

    def records(self, partitions: Collection[Partition]) -> int:
        """Return how many records to request; 0 if none could be used."""
        dispatcher = self._dispatcher
        if dispatcher.length.is_quick:
            return super().records(partitions)
        reading = _reading(partitions)
        # If there is a slot for each lane, each lane has its own demand.
        if len(reading) > dispatcher.slots and not super().records(partitions):
            return 0
        if not partitions:
            return 1  # the first partition delivered shows how many are needed
        if dispatcher.is_dry:
            return 0
        held = [partition.window.open + partition.buffered for partition in reading]
        return self._for_one(held[0]) if len(held) == 1 else self._for_many(held)

    def _for_many(self, held: Collection[int]) -> int:
        """Return how many records to read while some partition lacks them."""
        cost_s = self._dispatcher.length.cost_s
        enough = max(self._rules.records, int(self._rules.seconds / cost_s))
        short = any(records < enough for records in held)
        return max(1, min(enough, self._batch_records)) if short else 0

    def _for_one(self, held: int) -> int:
        """Return how many more records of the only partition to hold.

        That is one slice in addition to the running one.

        They are requested when half a slice has gone.
        """
        in_slice = max(1, self._dispatcher.length.turn_records)
        return 0 if 2 * held > 3 * in_slice else 2 * in_slice - held


def _reading(partitions: Collection[Partition]) -> list[Partition]:
    """Return the partitions to read; copies arrive by themselves when they are due."""
    return [
        each
        for each in partitions
        if each.is_assigned and each.is_fetched and not each.retry_level.is_copy
    ]
