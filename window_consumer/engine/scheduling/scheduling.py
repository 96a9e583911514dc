"""The parts that schedule one worker's records: dispatcher, shares, rates, orderings, demand."""

from __future__ import annotations

from collections.abc import Callable

from window_consumer.engine.decisions import EngineRules
from window_consumer.engine.guards.circuit_breaker import CircuitBreaker
from window_consumer.engine.retry.failed_records import FailedRecords
from window_consumer.engine.scheduling.batch_bisection import BatchBisection
from window_consumer.engine.scheduling.batching import BatchDispatcher
from window_consumer.engine.scheduling.dispatcher import SLICES_PER_SLOT, Dispatcher
from window_consumer.engine.scheduling.fetch_demand import (
    BatchDemand,
    FetchDemand,
    FullDemand,
    InTurnDemand,
)
from window_consumer.engine.scheduling.key_ordering import ByKey
from window_consumer.engine.scheduling.lanes import Lanes
from window_consumer.engine.scheduling.ordering import ByPartition, Ordering, Unordered
from window_consumer.engine.scheduling.rate_limit import RateLimits
from window_consumer.engine.scheduling.rate_limited_ordering import RateLimitedOrdering
from window_consumer.engine.scheduling.shares.class_ordering import ClassOrdering
from window_consumer.engine.scheduling.shares.class_rate_limit import ClassRateOrdering, ClassRates
from window_consumer.engine.scheduling.shares.fair_queue import FairQueue
from window_consumer.engine.scheduling.shares.share_classes import ShareClasses
from window_consumer.engine.scheduling.start_queue import StartQueue

_ORDERINGS: dict[str, type[Ordering]] = {
    "unordered": Unordered,
    "key": ByKey,
    "partition": ByPartition,
}


class Scheduling:
    """The parts that a worker's rules ask for, connected. Owner: poll thread."""

    def __init__(
        self,
        rules: EngineRules,
        failed_records: FailedRecords,
        make_start_queue: Callable[[], StartQueue],
    ):
        self._rules = rules
        self._make_start_queue = make_start_queue
        self.shares = None if rules.fair is None else ShareClasses(rules.fair)
        self.dispatcher = self._make_dispatcher(failed_records)
        self.rates = self._make_rates()
        self.dispatcher.rates = failed_records.ready.rates = self.rates

    @property
    def slices_ahead(self) -> int:
        """How many slices each slot may have while all slots are used."""
        # A queued slice would be in front of a class that arrives in the meantime.
        fixed = self._rules.limit is None and not self._rules.stall.leases
        return SLICES_PER_SLOT if fixed and self.shares is None else 1

    def slots(self) -> int:
        """Return how many slots may be busy now."""
        return self.dispatcher.slots

    def calls_running(self) -> int:
        """Return how many slots are busy."""
        return min(self.dispatcher.slots, len(self.dispatcher.out))

    def ordering(self, lanes: Lanes) -> Ordering:
        """Return the ordering of a new partition's records."""
        kind = _ORDERINGS[self._rules.ordering]
        shares = self.shares
        ordering = kind(lanes) if shares is None else ClassOrdering(lanes, kind.lane_of, shares)
        if isinstance(self.rates, ClassRates):
            return ClassRateOrdering(ordering, self.rates)
        return ordering if self.rates is None else RateLimitedOrdering(ordering, self.rates)

    def demand(self, breaker: CircuitBreaker) -> FetchDemand:
        """Return the demand, which decides how many records are requested."""
        rules, dispatcher = self._rules, self.dispatcher
        if isinstance(dispatcher, BatchDispatcher):
            return BatchDemand(dispatcher, breaker, rules.batch_records)
        if self.shares is not None:
            return FullDemand(dispatcher, breaker, rules.batch_records)
        if dispatcher.one_by_one:
            return InTurnDemand(dispatcher, breaker, rules.batch_records, rules.enough)
        return FetchDemand(dispatcher, breaker, rules.batch_records)

    def advance_clocks(self, now: float) -> None:
        """Advance the clocks of rates and classes: slots took their records before now."""
        if self.rates is not None:
            self.rates.now = now
        if self.shares is not None:
            self.shares.now = now

    def begin_tick(self, now: float) -> None:
        """Begin a turn of the classes, and refill the rates."""
        if self.shares is not None:
            self.shares.begin_turn(now)
        if self.rates is not None:
            for partition in self.rates.refill(now):
                if partition.is_assigned:
                    self.dispatcher.wake(partition)

    def next_due(self, now: float, *, may_start: bool) -> float:
        """The next time when a batch, a class or, if ``may_start``, a rate lets a record start."""
        due = self.dispatcher.next_due(now)
        if self.rates is not None and may_start:
            due = min(due, self.rates.next_at)
        return due if self.shares is None else min(due, self.shares.held_until)

    # ---- what the rules require

    def _make_dispatcher(self, failed_records: FailedRecords) -> Dispatcher:
        """Return the dispatcher, of slices or batches."""
        rules, leases = self._rules, self._rules.stall.leases
        ahead = self.slices_ahead
        queues = self._start_queue(), self._start_queue()
        if rules.batch is None:
            longest = 1 if leases else rules.batch_records
            dispatcher = Dispatcher(rules.slots, longest, ahead, *queues)
            dispatcher.ledger = self.shares
            dispatcher.one_by_one = rules.ordering == "partition"
            return dispatcher
        bisection = BatchBisection(failed_records)
        sizes = rules.slots, rules.batch_records, ahead
        return BatchDispatcher(*sizes, *queues, rules.batch, bisection)

    def _start_queue(self) -> StartQueue:
        if self.shares is None:
            return self._make_start_queue()
        return FairQueue(self.shares, self.slots)

    def _make_rates(self) -> RateLimits | None:
        rate = self._rules.rate
        if rate is None or self.shares is None or rate.per != "class":
            return None if rate is None else RateLimits(rate)
        return ClassRates(rate, self.shares)
