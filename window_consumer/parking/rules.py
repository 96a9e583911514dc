"""The rule of parking at each record's turn, and what it learns from the outcomes.

A record of the source whose lane is in the ladder is copied to the park topic. A copy in the ladder
that is not the first of its lane is held until it is. The index changes only with outcomes, which
an observer gets: a rule may be asked about the same record again.

A parked record holds its lane until its copy is acked, and siblings share lanes. So the copy's turn
comes only after the index has its offset.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence

from window_consumer.engine.partition import Partition
from window_consumer.engine.retry.failed_record import FailedRecord
from window_consumer.engine.scheduling.slices import Slice
from window_consumer.engine.turn import CopyTo, Finish, HoldUntilTold, Release, Turn, TurnRule
from window_consumer.model.outcome import Outcome
from window_consumer.model.record import Message, TopicPartition
from window_consumer.parking.index import LadderIndex, Lane, ParkLimits, SourceTurn


class Parking(TurnRule):
    """Keeps the order of the lanes in the ladder, for one worker. Owner: poll thread."""

    def __init__(
        self, limits: ParkLimits, parked: Outcome, park: Callable[[Partition, Message], CopyTo]
    ):
        self._limits = limits
        self._parked = parked
        self._park = park
        """Returns the copy of a record in the park topic; its outcome is ``parked``."""
        self.indexes: dict[TopicPartition, LadderIndex] = {}
        """By source partition."""
        self._held: dict[TopicPartition, dict[tuple[Lane, int], tuple[TopicPartition, int]]] = (
            defaultdict(dict)
        )
        """By source partition, and by lane and original offset: where held copies are. Some may
        not be held any more."""

    # ---- a rule

    def begin(self, release: Release) -> None:
        """See ``TurnRule``."""
        self._release = release
        self.indexes.clear()
        self._held.clear()

    def turns(
        self, partition: Partition, messages: Sequence[Message], now: float, wall_ms: float
    ) -> Mapping[int, Turn]:
        """See ``TurnRule``."""
        del now, wall_ms
        index = self.indexes.get(partition.home)
        if not index:
            return {}
        turn_of = self._copy_turn if partition.retry_level.is_copy else self._source_turn
        found: dict[int, Turn] = {}
        for at, message in enumerate(messages):
            turn = turn_of(index, partition, message)
            if turn is not None:
                found[at] = turn
        return found

    def _source_turn(
        self, index: LadderIndex, partition: Partition, message: Message
    ) -> Turn | None:
        match index.at_turn(message.key(), message.offset()):
            case SourceTurn.CALL:
                return None
            case SourceTurn.FINISH:
                return Finish(self._parked)
            case SourceTurn.PARK:
                return self._park(partition, message)

    def _copy_turn(self, index: LadderIndex, partition: Partition, message: Message) -> Turn | None:
        lane, offset = message.key(), partition.retry_level.hop_of(message).offset
        if index.may_start(lane, offset):
            return None
        self._held[partition.home][lane, offset] = partition.name, message.offset()
        return HoldUntilTold()

    # ---- an observer

    def left(self, failed: FailedRecord, outcome: Outcome, now: float) -> None:
        """See ``Observer``."""
        del now
        partition, message = failed.partition, failed.message
        if outcome.end != "moved":
            self._end(partition, [message])
        elif not partition.retry_level.is_copy and message.key() is not None:
            index = self.indexes.setdefault(partition.home, LadderIndex(self._limits))
            index.enter(message.key(), message.offset())

    def finished(
        self,
        partition: Partition,
        messages: Sequence[Message],
        outcome: Outcome,
        slice_: Slice | None,
        now: float,
    ) -> None:
        """See ``Observer``."""
        del slice_, now
        if outcome is not self._parked:  # its copy is outstanding
            self._end(partition, messages)

    def given_up(self, partition: Partition, now: float) -> None:
        """See ``Observer``."""
        del now
        if not partition.retry_level.is_copy:
            self.indexes.pop(partition.home, None)
            self._held.pop(partition.home, None)

    def _end(self, partition: Partition, messages: Sequence[Message]) -> None:
        index = self.indexes.get(partition.home)
        if not index or not partition.retry_level.is_copy:
            return  # a record of the source is in the index only once it has left it
        for message in messages:
            lane, offset = message.key(), partition.retry_level.hop_of(message).offset
            held = self._held[partition.home]
            held.pop((lane, offset), None)
            following = index.end(lane, offset)
            place = None if following is None else held.pop((lane, following), None)
            if place is not None:
                self._release(*place)
