"""The parts of one worker's Engine, connected here. Each owns its state."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial

from window_consumer.engine.commits.at_most_once import AtMostOnce
from window_consumer.engine.commits.broadcast import Broadcast
from window_consumer.engine.commits.delivery_guarantee import (
    AtLeastOnce,
    DeliveryGuarantee,
    DeliveryMode,
    MakeGuarantee,
)
from window_consumer.engine.commits.exactly_once import ExactlyOnce
from window_consumer.engine.commits.losses import Losses
from window_consumer.engine.commits.resting_partitions import RestingPartitions
from window_consumer.engine.counters import Counters
from window_consumer.engine.decisions import EngineRules
from window_consumer.engine.guards.backpressure import MemoryBudget
from window_consumer.engine.guards.circuit_breaker import CircuitBreaker
from window_consumer.engine.guards.crash_suspects import CrashSuspects
from window_consumer.engine.guards.interventions import Interventions
from window_consumer.engine.guards.pauses import Pauses
from window_consumer.engine.guards.stalls import Stalls
from window_consumer.engine.guards.start_gate import StartGate
from window_consumer.engine.housekeeping import HeadOfLineWatch, Housekeeping
from window_consumer.engine.intake import Intake
from window_consumer.engine.ownership.epochs import Epochs
from window_consumer.engine.ownership.unfinished_work import UnfinishedWork
from window_consumer.engine.partition import Partition
from window_consumer.engine.retry.acks import Acks
from window_consumer.engine.retry.completion import Completion
from window_consumer.engine.retry.copy_queue import CopyQueue
from window_consumer.engine.retry.output import Output
from window_consumer.engine.retry.policy import Jitter
from window_consumer.engine.retry.queue import RetryQueue
from window_consumer.engine.retry.record_outcomes import RecordOutcomes
from window_consumer.engine.retry.retry_topics import RetryTopicLevel
from window_consumer.engine.retry.turn_decisions import TurnDecisions
from window_consumer.engine.scheduling.concurrency.slot_limit import SlotLimit
from window_consumer.engine.scheduling.lane_ownership import LaneOwnership
from window_consumer.engine.scheduling.scheduling import Scheduling
from window_consumer.engine.scheduling.start_queue import ArrivalOrder, StartQueue
from window_consumer.engine.scheduling.unreadable import UnreadableRule
from window_consumer.engine.turn import Turns
from window_consumer.model.record import TopicPartition

_GUARANTEES: Mapping[DeliveryMode, Callable[[EngineRules], MakeGuarantee]] = {
    DeliveryMode.AT_MOST_ONCE: lambda _: AtMostOnce,
    DeliveryMode.BROADCAST: lambda _: Broadcast,
    DeliveryMode.EXACTLY_ONCE: lambda rules: partial(
        ExactlyOnce, interval_s=rules.commit_interval_s
    ),
}
"""The guarantees that the configuration can choose; all others are ``AtLeastOnce``."""


class EngineParts:
    """The parts that one worker's rules ask for. Owner: poll thread."""

    partition_type = Partition
    """The class of each assignment; the test kit uses one that records what happens to it."""
    start_queue_type: Callable[[], StartQueue] = ArrivalOrder
    """Makes the two queues that decide which new records and copies get the next free slot."""

    def __init__(
        self,
        rules: EngineRules,
        jitter: Jitter,
        retry_levels: Mapping[str, RetryTopicLevel],
        make_guarantee: MakeGuarantee | None,
    ):
        """``retry_levels`` are retry topics by name; the caller adds those subscribed later.

        ``make_guarantee`` makes a guarantee that replaces the one from the rules.
        """
        self.rules = rules
        self.counters = Counters()
        self.partitions: dict[TopicPartition, Partition] = {}
        self.budget = MemoryBudget(rules.window_bytes, rules.batch_records, rules.cell_records)
        self.retry_queue = RetryQueue(
            rules.retry,
            jitter,
            self.counters,
            is_broadcast=rules.delivery is DeliveryMode.BROADCAST,
        )
        self.failed_records = self.retry_queue.records
        self.copy_queue = CopyQueue(
            rules.retry, self.failed_records, self.budget, jitter, self.counters
        )
        self.scheduling = Scheduling(rules, self.failed_records, self.start_queue_type)
        self.dispatcher = self.scheduling.dispatcher
        self.rates, self.shares = self.scheduling.rates, self.scheduling.shares
        self.breaker = CircuitBreaker(
            rules.breaker,
            self.scheduling.slots,
            self.scheduling.calls_running,
            self.dispatcher.running_since,
        )
        make = make_guarantee or _guarantee_of(rules)
        self.guarantee: DeliveryGuarantee = make(
            self.partitions, self.counters, self.dispatcher.wake
        )
        self.output = Output(rules.slots, self.budget, jitter, self.counters)
        self.outcomes = RecordOutcomes(self.retry_queue, self.dispatcher, self.counters)
        self.turns = Turns([UnreadableRule(rules.retry.when_spent)])
        self.turn_decisions = TurnDecisions(
            self.turns, self.failed_records, self.dispatcher, self.outcomes
        )
        self.acks = Acks(
            self.breaker,
            self.dispatcher,
            self.retry_queue,
            self.copy_queue,
            self.output,
            self.counters,
            self.outcomes,
            self.turn_decisions,
        )
        self.completion = Completion(
            self.breaker, self.dispatcher, self.retry_queue, self.acks, self.counters, self.outcomes
        )
        self.stalls = Stalls(
            rules.stall,
            self.dispatcher,
            self.completion,
            self.breaker,
            self.counters,
            may_move=rules.retry.moves,
        )
        self.suspects = CrashSuspects(
            rules.retry, self.dispatcher, self.failed_records, self.outcomes
        )
        self.start_gate = StartGate(
            self.breaker,
            self.dispatcher,
            self.retry_queue,
            self.copy_queue,
            self.output,
            self.completion,
            self.outcomes,
            self.suspects,
            self.counters,
            self.partitions,
            self.turn_decisions,
        )
        self.slot_limit = SlotLimit(rules, self.scheduling, self.start_gate, self.counters)
        self.demand = self.scheduling.demand(self.breaker)
        self.resting = RestingPartitions(
            self.partitions,
            self.dispatcher,
            self.completion,
            self.failed_records,
            self.outcomes,
            self.suspects,
            self.guarantee,
        )
        self.housekeeping = Housekeeping(
            self.partitions,
            self.budget,
            self.outcomes,
            self.guarantee,
            HeadOfLineWatch(rules.hover_s, self.dispatcher, self.failed_records),
        )
        self.epochs = Epochs(
            rules,
            self.partitions,
            retry_levels,
            self.scheduling,
            self.guarantee,
            self.budget,
            self.turns,
            self.partition_type,
        )
        self.outlived = self.epochs.outlived
        self.intake = Intake(
            self.partitions,
            self.budget,
            self.dispatcher,
            self.housekeeping,
            self.counters,
            self.epochs,
        )
        self.lane_ownership = LaneOwnership(
            self.partitions,
            self.dispatcher,
            self.failed_records,
            self.completion,
            self.outcomes,
            ordered=rules.ordering != "unordered",
        )
        self.pauses = Pauses(
            self.partitions,
            self.dispatcher,
            self.copy_queue,
            self.failed_records,
            self.completion,
            self.outcomes,
        )
        self.losses = Losses(
            self.guarantee,
            self.dispatcher,
            self.completion,
            self.output,
            self.failed_records,
            self.outcomes,
        )
        self.interventions = Interventions(
            self.partitions, self.dispatcher, self.retry_queue, self.completion, self.outcomes
        )
        self.work = UnfinishedWork(
            self.partitions,
            self.dispatcher,
            self.failed_records,
            self.output,
            self.guarantee,
            self.stalls,
            self.lane_ownership,
            self.outlived,
        )


def _guarantee_of(rules: EngineRules) -> MakeGuarantee:
    chosen = _GUARANTEES.get(rules.delivery)
    return AtLeastOnce if chosen is None else chosen(rules)
