"""What leaves the Engine: records for the slots, and copies for the broker.

This module combines everything that may hold records back: the breaker, crash suspects, the budget,
and partitions that are about to be released.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from enum import Enum

from window_consumer.engine.counters import Counters
from window_consumer.engine.decisions import Decisions
from window_consumer.engine.guards.backpressure import MemoryBudget
from window_consumer.engine.guards.circuit_breaker import (
    BreakerNews,
    BreakerState,
    CircuitBreaker,
)
from window_consumer.engine.guards.crash_suspects import CrashSuspects
from window_consumer.engine.partition import Partition
from window_consumer.engine.partition_state import HoldReason
from window_consumer.engine.retry.completion import Completion
from window_consumer.engine.retry.output import Output
from window_consumer.engine.retry.policy import FailedRecord
from window_consumer.engine.retry.queue import RetryQueue
from window_consumer.engine.scheduling.dispatcher import Dispatcher
from window_consumer.engine.scheduling.lanes import Lane
from window_consumer.engine.scheduling.slices import Slice
from window_consumer.engine.scheduling.unreadable import (
    needs_no_slot,
    pass_by,
)
from window_consumer.model.record import TopicPartition

REMEMBERED_PROBES = 20
"""How many keys of recent probes are kept: other keys are tried first."""


class WorkerHold(Enum):
    """Why nothing of a whole worker starts by itself."""

    BREAKER = "circuit breaker"
    """Only single records start, as probes."""
    SUSPECT_ALONE = "suspect alone"
    """A record on which the process has ended runs, or waits to run, by itself."""
    UNACKED_RESULTS = "unacked results"
    """So many results are unacked that those of further calls would have no room."""


class StartGate:
    """Decides what starts and what leaves. Owner: poll thread."""

    def __init__(  # noqa: PLR0913 - everything that has a say; made in one place
        self,
        breaker: CircuitBreaker,
        dispatcher: Dispatcher,
        failures: RetryQueue,
        producing: Output,
        completion: Completion,
        suspects: CrashSuspects,
        budget: MemoryBudget,
        counters: Counters,
        partitions: Mapping[TopicPartition, Partition],
    ):
        self._breaker = breaker
        self._dispatcher = dispatcher
        self._failures = failures
        self._producing = producing
        self._completion = completion
        self._suspects = suspects
        self._budget = budget
        self._counters = counters
        self._partitions = partitions
        self.in_a_hurry = False
        """Partitions are about to be released: spent records leave now or not at all."""
        self._copies_first = False
        self._probed: deque[Lane] = deque(maxlen=REMEMBERED_PROBES)
        """The keys of the latest probes."""

    def decide(self, decisions: Decisions, now: float) -> None:
        """Dispatch what may start, and publish what leaves."""
        if self._suspects.cases and self._breaker.lets_start:
            decisions.dispatch.extend(self._called(self._suspects.slices(now), now))
        holds = self.holds(now)
        if not holds:
            self._start(decisions, now)
        elif WorkerHold.BREAKER in holds:
            if self._may_probe and (probe := self._probe(now)):
                self._breaker.probing(probe, now, is_new=probe.is_new)
                decisions.dispatch.append(probe)
        elif WorkerHold.SUSPECT_ALONE in holds:
            self._dispatcher.break_all_up()
        self._publish(decisions, now)
        decisions.produce.extend(self._producing.to_send())

    def holds(self, now: float) -> list[WorkerHold]:
        """Return why nothing of the whole worker starts by itself now.

        A single partition's reasons are in its ``holds``.
        """
        reasons = []
        if not self._breaker.lets_start:
            reasons.append(WorkerHold.BREAKER)
        if self._suspects.holds_the_worker(now):
            reasons.append(WorkerHold.SUSPECT_ALONE)
        if self._producing.holds_back:
            reasons.append(WorkerHold.UNACKED_RESULTS)
        return reasons

    def obey(self, news: BreakerNews, now: float) -> None:
        """Apply a change of the breaker's state."""
        self._failures.spares = self._breaker.spares
        if news.state is BreakerState.PAUSED:
            for partition in self._partitions.values():
                self._failures.spare(partition.failed.values())
        if news.pardon:
            self._failures.pardon(once=news.once)
        if news.state in (BreakerState.OPEN, BreakerState.PAUSED):
            self._counters.breaker_opened += news.state is BreakerState.OPEN
            self._dispatcher.break_all_up()
            for slice_ in list(self._dispatcher.out):
                partition = slice_.partition
                # The commit names a suspect that was dispatched: it counts as started.
                if partition.is_active and HoldReason.CRASH_SUSPECTS not in partition.holds:
                    self._completion.take_back(slice_, now)

    @property
    def _may_probe(self) -> bool:
        return self._breaker.wants_probe and not self._dispatcher.full

    def _start(self, decisions: Decisions, now: float) -> None:
        """Dispatch what may start without a commit that names it; see ``RetryShare``."""
        dispatcher, turns = self._dispatcher, self._dispatcher.turns
        if dispatcher.has_new and self._has_any_again:
            while turns.is_due and (slice_ := self._again(now)):
                turns.charge(slice_, dispatcher.cost_s)
                decisions.dispatch.append(slice_)
        decisions.dispatch.extend(self._called(dispatcher.slices(now), now))
        while self._has_any_again and (slice_ := self._again(now)):
            decisions.dispatch.append(slice_)

    @property
    def _has_any_again(self) -> bool:
        """Retries may be waiting; normally there are none."""
        return self._failures.has_ready or self._dispatcher.has_copies

    def _called(self, slices: Iterable[Slice], now: float) -> Iterator[Slice]:
        """Yield slices for the slots; unreadable records leave at once."""
        for slice_ in slices:
            if needs_no_slot(slice_):
                self._dispatcher.back(slice_)
                pass_by(slice_, self._failures.when_spent, now)
                self._completion.complete(slice_, now)
            else:
                yield slice_

    def _again(self, now: float) -> Slice | None:
        """Dispatch retries and copies in turn; return None if none may go out."""
        dispatcher = self._dispatcher
        if dispatcher.full or not dispatcher.turns.has_room(dispatcher.slots):
            return None
        copies = self._called(dispatcher.copies(now), now)
        self._copies_first = not self._copies_first
        if self._copies_first and (slice_ := next(copies, None)):
            return slice_
        if records := self._failures.next_calls(dispatcher.slice_records):
            return dispatcher.again(records, now)
        return None if self._copies_first else next(copies, None)

    def _probe(self, now: float) -> Slice | None:
        """Dispatch one record as a probe: a new one, or a retry if no new one can start.

        Successive probes have different keys and partitions if possible.
        """
        dispatcher, wants_trial = self._dispatcher, self._breaker.wants_trial
        if wants_trial:
            suspects = self._called(self._suspects.slices(now), now)
            if self._suspects.cases and (suspect := next(suspects, None)):
                return suspect
            # The last probe was inconclusive: its process died on several records at once.
            if half := dispatcher.half(now):
                return half
        singles = iter(lambda: dispatcher.single(now, self._probed), None)
        if slice_ := next(self._called(singles, now), None):
            if (key := slice_.messages[0].key()) is not None:
                self._probed.append(key)
            return slice_
        if not wants_trial:
            return None
        if records := self._failures.next_calls(1):
            return dispatcher.again(records, now)
        copies = iter(lambda: dispatcher.single_copy(now), None)
        return next(self._called(copies, now), None)

    def _publish(self, decisions: Decisions, now: float) -> None:
        def may_leave(failed: FailedRecord) -> bool:
            return self._breaker.lets_leave(
                failed.last_failure, now, in_a_hurry=self.in_a_hurry, later=failed.asks_later
            )

        for failed in self._failures.to_publish(self._budget, may_leave):
            if failed.is_dropped:
                self._completion.drop(failed, now)
                continue
            failed.partition.publishing += 1
            decisions.publish.append(failed)
