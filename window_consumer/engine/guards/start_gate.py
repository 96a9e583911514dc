"""The gate out of the Engine: for records to the slots, and copies to the broker.

This module combines everything that may hold records back: the breaker, crash suspects, the budget,
and partitions that are about to be released.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum

from window_consumer.engine.counters import Counters
from window_consumer.engine.decisions import Decisions
from window_consumer.engine.guards.breaker.departures import Departure, SpentCall
from window_consumer.engine.guards.breaker.record_sampling import RecordSampling
from window_consumer.engine.guards.breaker.single_starts import SingleStarts
from window_consumer.engine.guards.breaker_state import (
    BreakerAnswer,
    BreakerNews,
    BreakerState,
    Outlook,
)
from window_consumer.engine.guards.circuit_breaker import AGAIN, CircuitBreaker
from window_consumer.engine.guards.crash_suspects import CrashSuspects
from window_consumer.engine.partition import Partition
from window_consumer.engine.partition_state import HoldReason
from window_consumer.engine.retry.call_evidence import lane_name
from window_consumer.engine.retry.completion import Completion
from window_consumer.engine.retry.copy_queue import CopyQueue
from window_consumer.engine.retry.failed_record import FailedRecord
from window_consumer.engine.retry.output import Output
from window_consumer.engine.retry.queue import RetryQueue, may_be_pardoned
from window_consumer.engine.retry.record_outcomes import RecordOutcomes
from window_consumer.engine.retry.turn_decisions import TurnDecisions
from window_consumer.engine.scheduling.dispatcher import Dispatcher
from window_consumer.engine.scheduling.record_queue import Place
from window_consumer.engine.scheduling.slices import Slice
from window_consumer.model.record import TopicPartition


class WorkerHold(Enum):
    """Why nothing of a whole worker starts by itself."""

    BREAKER = "circuit breaker"
    """The breaker lets only some records start, one by one."""
    SUSPECT_ALONE = "suspect alone"
    """A record on which the process has ended runs, or waits to run, by itself."""
    ASKED_TO_WAIT = "asked to wait"
    """A call has asked for a pause: nothing starts before its end."""
    UNACKED_RESULTS = "unacked results"
    """So many results are unacked that there is no room for those of further calls."""


class StartGate:
    """Decides what starts and what leaves. Owner: poll thread."""

    def __init__(  # noqa: PLR0913 - everything that has a say; made in one place
        self,
        breaker: CircuitBreaker,
        dispatcher: Dispatcher,
        retry_queue: RetryQueue,
        copy_queue: CopyQueue,
        output: Output,
        completion: Completion,
        outcomes: RecordOutcomes,
        suspects: CrashSuspects,
        counters: Counters,
        partitions: Mapping[TopicPartition, Partition],
        turn_decisions: TurnDecisions,
    ):
        self._turn_decisions = turn_decisions
        self._breaker = breaker
        self._dispatcher = dispatcher
        self._retry_queue = retry_queue
        self._copy_queue = copy_queue
        self._output = output
        self._completion = completion
        self._outcomes = outcomes
        self._suspects = suspects
        self._counters = counters
        self._partitions = partitions
        self.in_a_hurry = False
        """Partitions are about to be released: spent records leave now or not at all."""
        self._copies_first = False
        self._held_until = completion.held_until
        """The end of the last requested pause that was obeyed: nothing starts before."""
        self._sampling = RecordSampling(breaker, dispatcher)
        self._single_starts = SingleStarts(
            breaker, dispatcher, retry_queue, suspects, self._sampling
        )

    def decide(self, decisions: Decisions, now: float) -> None:
        """Dispatch what may start, and publish what leaves."""
        self._dispatcher.kept_free = None
        if self._held_until != self._completion.held_until:
            self._held_until = self._completion.held_until
            self.take_back(now)
        waits = now < self._held_until
        if self._suspects.cases and self._breaker.lets_start and not waits:
            decisions.dispatch.extend(self._suspects.slices(now))
        holds = self.holds(now)
        if not holds:
            self._start(decisions, now)
        elif waits:
            self._dispatcher.release_all_gathered()
        elif WorkerHold.BREAKER in holds:
            limit = self._breaker.limit or 0
            if WorkerHold.UNACKED_RESULTS not in holds:
                self._start_few(decisions, now, limit)
            elif not self._dispatcher.out:
                self._start_few(decisions, now, min(1, limit))
        elif WorkerHold.SUSPECT_ALONE in holds:
            self._dispatcher.release_all_gathered()
        self._turn_decisions.carry_out(now)
        self._turn_decisions.make_room()
        self._publish(decisions, now)
        decisions.produce.extend(self._output.to_send())

    def holds(self, now: float) -> list[WorkerHold]:
        """Return why nothing of the whole worker starts by itself now.

        A single partition's reasons are in its ``holds``.
        """
        reasons = []
        if not self._breaker.lets_start:
            reasons.append(WorkerHold.BREAKER)
        if now < self._held_until:
            reasons.append(WorkerHold.ASKED_TO_WAIT)
        if self._suspects.holds_the_worker(now):
            reasons.append(WorkerHold.SUSPECT_ALONE)
        if self._output.holds_back:
            reasons.append(WorkerHold.UNACKED_RESULTS)
        return reasons

    def obey(self, news: BreakerNews, now: float) -> None:
        """Apply a change of the breaker's state."""
        self._retry_queue.spares = not self._breaker.state.charges
        if news.state is BreakerState.PAUSED:
            self._retry_queue.spare()
        if news.pardon:
            self._retry_queue.pardon()
        elif news.state is BreakerState.POISON:
            self._retry_queue.charge()
        self._counters.breaker_opened += news.state is BreakerState.OPEN and news.pardon
        if news.limits:
            self.take_back(now)

    def take_back(self, now: float) -> None:
        """Take back the records that have not started."""
        self._dispatcher.release_all_gathered()
        for slice_ in list(self._dispatcher.out):
            partition = slice_.partition
            # The commit names a suspect that was dispatched: it counts as started.
            if partition.is_assigned and HoldReason.CRASH_SUSPECTS not in partition.holds:
                self._completion.take_back(slice_, now)

    def obey_user(self, now: float, *, release: bool) -> BreakerAnswer:
        """Let failed records leave when they fail once more, or hold them until a call returns."""
        breaker = self._breaker
        if not breaker.rules.enabled:
            return BreakerAnswer.SWITCHED_OFF
        if not release:
            self._retry_queue.hold()
            breaker.hold(now)
        elif breaker.state is BreakerState.CLOSED:
            return BreakerAnswer.NOTHING_HELD
        else:
            self._retry_queue.release()
            breaker.release(now)
        return BreakerAnswer.OBEYED

    def outlook(self) -> Outlook:
        """Return the outlook: what the worker could call now."""
        dispatcher, retry_queue = self._dispatcher, self._retry_queue
        sources = [
            each
            for each in self._partitions.values()
            if each.retry_level.level is None and each.is_assigned and not each.is_suspended
        ]
        waiting = any(each.ordering.startable for each in sources)
        behind = [each for each in sources if _has_lag(each)]
        failed = any(each.reason is None or may_be_pardoned(each) for each in retry_queue.records)
        return Outlook(
            slots=dispatcher.slots,
            new=waiting or any(not each.is_full for each in behind),
            more=bool(behind),
            ready=waiting or retry_queue.has_ready or bool(dispatcher.copies),
            failed=failed,
            held=len(retry_queue.records),
            released=retry_queue.has_released,
            delivered=self._counters.delivered,
        )

    def _start(self, decisions: Decisions, now: float) -> None:
        """Dispatch what may start without a commit that names it; see ``RetryShare``."""
        dispatcher, turns = self._dispatcher, self._dispatcher.turns
        if self._breaker.state.spreads:
            for sample in self._sampling.beside(now):
                self._send(decisions, sample, now, Place.LAST)
        if dispatcher.new and self._has_any_again:
            while turns.is_due and (slice_ := self._again(now)):
                turns.charge(slice_, dispatcher.length.cost_s)
                self._send(decisions, slice_, now)
        for slice_ in dispatcher.new_slices(now):
            self._send(decisions, slice_, now)
        while self._has_any_again and (slice_ := self._again(now)):
            if turns.is_busy:
                turns.charge(slice_, dispatcher.length.cost_s)
            self._send(decisions, slice_, now)

    def _send(
        self, decisions: Decisions, slice_: Slice, now: float, place: Place | None = None
    ) -> None:
        """Dispatch a slice; the breaker counts it unless it is closed."""
        decisions.dispatch.append(slice_)
        if self._breaker.counts_calls:
            lane = lane_name(slice_.partition, slice_.lane_at(0))
            kind = (place or "new") if slice_.is_new else AGAIN
            self._breaker.started(slice_, len(slice_.messages), now, kind, lane)

    def _start_few(self, decisions: Decisions, now: float, limit: int) -> None:
        """Dispatch records one by one, as the breaker allows."""
        for slice_, place in self._single_starts.next_slices(limit, now):
            self._send(decisions, slice_, now, place)

    @property
    def _has_any_again(self) -> bool:
        """Retries may be waiting; normally there are none."""
        return self._retry_queue.has_ready or bool(self._dispatcher.copies)

    def _again(self, now: float) -> Slice | None:
        """Dispatch retries and copies in turn; return None if none may go out."""
        dispatcher = self._dispatcher
        if dispatcher.full or not self._has_room(now):
            return None
        copies = iter(dispatcher.copy_slices(now))
        self._copies_first = not self._copies_first
        if self._copies_first and (slice_ := next(copies, None)):
            return slice_
        if records := self._retry_queue.next_calls(dispatcher.slice_records):
            return dispatcher.again(records, now)
        return None if self._copies_first else next(copies, None)

    def _has_room(self, now: float) -> bool:
        """Return whether a slot may run a retry: any idle slot while no new record can start."""
        dispatcher = self._dispatcher
        if dispatcher.turns.has_room(dispatcher.slots, dispatcher.idle_slots, now):
            return True
        partitions = self._partitions.values()
        return dispatcher.idle_slots > 0 and not any(map(self._may_bring_new, partitions))

    def _may_bring_new(self, partition: Partition) -> bool:
        """Return whether a new record of a partition could start now, or after a fetch."""
        if partition.retry_level.level is not None or not partition.is_assigned:
            return False
        blocked = self._dispatcher.one_by_one and self._retry_queue.records.of(partition)
        return bool(partition.ordering.startable) or not (partition.is_full or blocked)

    def _publish(self, decisions: Decisions, now: float) -> None:
        def judge(failed: FailedRecord) -> Departure:
            call = spent_call(failed)
            return self._breaker.departure(call, now, in_a_hurry=self.in_a_hurry)

        self._retry_queue.judge(judge, now)
        for failed in self._copy_queue.to_publish():
            if failed.is_dropped:
                self._outcomes.drop(failed, now)
                continue
            decisions.publish.append(failed)


def spent_call(failed: FailedRecord) -> SpentCall:
    """Return what the breaker needs to know about a record's last call."""
    return SpentCall(
        lane_name(failed.partition, failed.lane),
        failed.first_failure,
        failed.called_at,
        failed.last_failure,
        not failed.in_batch,
        failed.asks_later,
        not may_be_pardoned(failed),
        failed.partition.retry_level.level is not None and failed.level is not None,
    )


def _has_lag(partition: Partition) -> bool:
    """Return whether records wait in Kafka, or for room in the window."""
    end = partition.log_end
    return partition.buffered > 0 or (end is not None and end > partition.next_delivery)
