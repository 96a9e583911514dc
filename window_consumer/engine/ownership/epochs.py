"""Epochs: each assignment of a partition begins one, with a new window and its shared lanes."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping, Sequence

from window_consumer.engine.commits.commit_state import CommitState
from window_consumer.engine.commits.delivery_guarantee import DeliveryGuarantee
from window_consumer.engine.decisions import Assigned, EngineRules
from window_consumer.engine.guards.backpressure import MemoryBudget
from window_consumer.engine.partition import Partition
from window_consumer.engine.retry.retry_topics import RetryTopicLevel
from window_consumer.engine.scheduling.lanes import Lanes
from window_consumer.engine.scheduling.outlived_calls import OutlivedCall, OutlivedCalls
from window_consumer.engine.scheduling.rate_limited_ordering import RateLimitedOrdering
from window_consumer.engine.scheduling.scheduling import Scheduling
from window_consumer.engine.scheduling.shares.class_ordering import ClassOrdering
from window_consumer.engine.scheduling.slices import Slice
from window_consumer.engine.scheduling.turn_ordering import TurnOrdering
from window_consumer.engine.turn import Turns
from window_consumer.model.record import TopicPartition

REMEMBERED_CHANGES = 32


class Epochs:
    """Makes a partition for each assignment of one worker. Owner: poll thread."""

    def __init__(  # noqa: PLR0913 - what a partition consists of
        self,
        rules: EngineRules,
        partitions: Mapping[TopicPartition, Partition],
        retry_levels: Mapping[str, RetryTopicLevel],
        scheduling: Scheduling,
        guarantee: DeliveryGuarantee,
        budget: MemoryBudget,
        turns: Turns,
        make_partition: Callable[..., Partition],
    ):
        self._rules = rules
        self._partitions = partitions
        self._retry_levels = retry_levels
        """Retry topics by name. The caller that passed it adds topics that are subscribed later."""
        self._scheduling = scheduling
        self._guarantee = guarantee
        self._budget = budget
        self.turns = turns
        self._make_partition = make_partition
        self._last = 0
        """The number of the latest epoch."""
        self.changes: deque[float] = deque(maxlen=REMEMBERED_CHANGES)
        """The times of the last changes of the assignment."""
        self.outlived = OutlivedCalls()
        self.asks_always = False
        """A rule may concern any record, not only those whose headers are lost."""

    def begin(self, assigned: Assigned) -> Partition:
        """Return a partition in a new epoch. It joins its siblings but is not yet among ours."""
        rules, name = self._rules, assigned.name
        self._last += 1
        retry_level = self._retry_levels.get(name.topic) or RetryTopicLevel(name.topic)
        home = TopicPartition(retry_level.source, name.partition)
        siblings = [each for each in self._partitions.values() if each.home == home]
        partition = self._make_partition(
            name,
            self._last,
            self._guarantee.window(assigned.next_offset, rules.window_cells, rules.cell_records),
            self._scheduling.ordering(self._lanes_of(siblings, home)),
            self._commit_state(assigned),
            self._budget,
            retry_level,
            assigned.finished,
        )
        for ordering in (partition.ordering, partition.ordering.plain):
            if isinstance(ordering, RateLimitedOrdering | ClassOrdering):
                ordering.belongs_to(partition)
        if self.asks_always:
            self.ask_turns(partition)
        self._guarantee.begin(partition)
        partition.topic_id = assigned.topic_id
        partition.join(siblings)
        return partition

    def _commit_state(self, assigned: Assigned) -> CommitState:
        commit = CommitState(
            assigned.name,
            self._rules.commit_interval_s,
            assigned.topic_hash,
            assigned.known_partitions,
        )
        if assigned.committed:
            commit.acknowledge_start(*assigned.committed, shows_use=assigned.opened)
        says_all = assigned.opened and assigned.kept is None
        commit.changed = not (assigned.committed and says_all)
        return commit

    def _lanes_of(self, siblings: Sequence[Partition], home: TopicPartition) -> Lanes:
        """Return the siblings' lanes; without siblings, new ones that outlived calls keep busy."""
        if siblings:
            return siblings[0].ordering.lanes
        lanes = Lanes()
        self.outlived.hold_in(lanes, home)
        return lanes

    def ask_turns(self, partition: Partition) -> None:
        """Ask the rules from now on about each of a partition's records at its turn."""
        if not partition.asks_turns:
            partition.asks_turns = True
            partition.ordering = partition.ordering.within(
                lambda inner: TurnOrdering(inner, self.turns, partition)
            )

    def release_lanes(self, slice_: Slice) -> OutlivedCall | None:
        """Release the lanes of a call that has ended after its partition was released.

        Wakes the partitions whose records waited for it. Returns None if it held no lane.
        """
        call = self.outlived.ended(slice_)
        if call is not None:
            for partition in self._partitions.values():
                if partition.home == call.home:
                    self._scheduling.dispatcher.wake(partition)
        return call
