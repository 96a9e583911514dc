"""Which copies may start: only those whose lane belongs to this member.

The source partition of a lane's records owns the lane: its member calls all of them, including
copies in retry topics. While all members of a group read the same topics, one member has both the
copy's partition and the source partition. While the levels of a ladder change, the owners may
differ: the copies then wait here, *away*, until one of the two partitions has moved. If the source
partition does not exist or is not read, its copies start like any others.

A stray is a copy whose partition number differs from its source's: it was written by key, by hand,
or while its topic had fewer partitions than the source. It is not called there but written,
unchanged, to the partition with its source's number, and called there.

Waiting records stay where they are: in the buffer, in the ordering, or, after a call, with their
partition.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from functools import partial

from window_consumer.engine.decisions import Outlived, OwnerAway
from window_consumer.engine.guards.pauses import hold_back
from window_consumer.engine.partition import Partition
from window_consumer.engine.partition_state import HoldReason
from window_consumer.engine.retry.completion import Completion
from window_consumer.engine.retry.failed_record import FailedRecord, Forward
from window_consumer.engine.retry.failed_records import FailedRecords
from window_consumer.engine.retry.policy import Spent
from window_consumer.engine.retry.record_outcomes import RecordOutcomes
from window_consumer.engine.scheduling.dispatcher import Dispatcher
from window_consumer.engine.scheduling.record_queue import RecordRun
from window_consumer.model.fault import Failure, Fault
from window_consumer.model.headers import Reason
from window_consumer.model.protocols import Copy
from window_consumer.model.record import Message, TopicPartition

_WHY = "the copy is not in the partition with its source's number; it moves there"

_FAILURE = Failure(LookupError(_WHY), Fault("", _WHY, "", ""))


def stray(partition: Partition, message: Message, seq: int, now: float) -> FailedRecord:
    """Return a stray as a record that leaves and has no lane: it was not called here.

    Only the broker's ack may delay it, so its reason is that of an intervention.
    """
    forward = Forward(sent_home(partition, message))
    spent = Spent(Reason.MANUAL)
    return FailedRecord(
        partition, message, seq, None, 0, _FAILURE, now, now, spent, forward=forward
    )


def sent_home(partition: Partition, message: Message) -> Copy:
    """Return the unchanged copy of a stray, for the partition where it belongs."""
    return Copy(
        topic=partition.name.topic,
        partition=partition.retry_level.hop_of(message).origin.partition,
        key=message.key(),
        value=message.value(),
        headers=message.headers() or (),
    )


WORTH_SAYING_S = 10.0
"""Copies that wait for their owner for a shorter time are not reported: a rebalance moves
partitions one after another, and members discover a new topic within five seconds."""

AGAIN_S = 60.0
"""How often the report is repeated."""

CHECK_S = 1.0
"""How often the wait is checked."""


class LaneOwnership:
    """Holds back copies whose lane belongs to another member. Owner: poll thread."""

    def __init__(
        self,
        partitions: Mapping[TopicPartition, Partition],
        dispatcher: Dispatcher,
        failed_records: FailedRecords,
        completion: Completion,
        outcomes: RecordOutcomes,
        *,
        ordered: bool,
    ):
        self._partitions = partitions
        self._dispatcher = dispatcher
        self._failed_records = failed_records
        self._completion = completion
        self._outcomes = outcomes
        self._ordered = ordered
        self._sizes: Mapping[str, int] | None = None
        """How many partitions each subscribed topic has; None until this is known."""
        self._away: dict[Partition, float] = {}
        """Partitions whose lanes another member owns, and since when."""
        self._look_at = float("-inf")
        self._strays: list[tuple[Partition, Message, int]] = []

    def on_topics(self, sizes: Mapping[str, int], now: float) -> None:
        """Record the partition counts of subscribed topics: source partitions may be missing."""
        self._sizes = sizes
        self.sort_out(now)

    def sort_out(self, now: float) -> None:
        """Recheck the owners after partitions came or went, or are about to go.

        A partition whose owner has just left takes back its unstarted records.
        """
        if not self._ordered:
            return
        self._away = {p: since for p, since in self._away.items() if p.is_assigned}
        for partition in self._partitions.values():
            if not (partition.retry_level.is_copy and partition.is_assigned):
                continue
            is_away = self._is_away(partition)
            was_away = HoldReason.NOT_OWNER in partition.holds
            if is_away and not was_away:
                self._leave_home(partition, now)
            elif was_away and not is_away:
                self._come_home(partition, now)

    def assigned(self, partition: Partition, partitions: int) -> None:
        """Look for strays among a partition's copies; its topic has ``partitions`` partitions."""
        if self._ordered and partition.retry_level.is_copy:
            partition.find_strays = partial(self._find_strays, partitions)

    def send_home(self, now: float) -> None:
        """Let the strays found since the last call leave."""
        if not self._strays:
            return
        strays, self._strays = self._strays, []
        for partition, message, seq in reversed(strays):
            if partition.accepts_results:
                going_home = stray(partition, message, seq, now)
                self._failed_records.enter(going_home)
                self._failed_records.leave_first(going_home)

    def _find_strays(
        self, partitions: int, partition: Partition, run: RecordRun
    ) -> Collection[int]:
        source, own = partition.retry_level.source, partition.name.partition
        if self._sizes is not None:
            partitions = max(partitions, self._sizes.get(partition.name.topic, 0))
        found = set()
        for message, seq in zip(run.messages, run.seqs, strict=True):
            topic, number = partition.retry_level.hop_of(message).origin
            if topic == source and number != own and number < partitions:
                found.add(seq)
                self._strays.append((partition, message, seq))
        return found

    def outlived(self, gone: Partition) -> list[Outlived]:
        """Return the running calls for copies whose source partition is lost."""
        return [
            Outlived(partition.name, message.offset(), message.key(), counts=True)
            for partition in self._away
            if partition.home == gone.name
            for slice_ in self._dispatcher.slices_of(partition)
            for message in slice_.all_running()
        ]

    def busy(self, home: Partition) -> bool:
        """Return whether calls run for copies whose source partition is about to be released."""
        return any(each.slices for each in self._away if each.home == home.name)

    def owners_away(self, now: float) -> list[OwnerAway]:
        """Now and then, return partitions that have long been away and have startable copies."""
        if not self._away or now < self._look_at:
            return []
        found = [
            OwnerAway(partition.name, partition.home, partition.waiting(now), now - since)
            for partition, since in self._away.items()
            if now - since >= WORTH_SAYING_S and partition.waiting(now)
        ]
        self._look_at = now + (AGAIN_S if found else CHECK_S)
        return found

    def _is_away(self, partition: Partition) -> bool:
        home = partition.home
        owned = self._partitions.get(home)
        if owned is not None:
            return not owned.is_assigned
        if self._sizes is None or partition.name.partition >= self._sizes.get(
            partition.name.topic, 0
        ):
            # The topics were last counted before this partition existed; its source may be equally
            # new.
            return True
        return home.partition < self._sizes.get(home.topic, 0)

    def _leave_home(self, partition: Partition, now: float) -> None:
        partition.set_hold(HoldReason.NOT_OWNER, held=True)
        self._away[partition] = now
        hold_back(partition, self._dispatcher, self._completion, now)

    def _come_home(self, partition: Partition, now: float) -> None:
        partition.set_hold(HoldReason.NOT_OWNER, held=False)
        del self._away[partition]
        self._failed_records.call_held(partition)
        self._outcomes.advance(partition, now)
