"""Parking with one planted bug each."""

from __future__ import annotations

from collections.abc import Collection

from window_consumer.engine.partition import Partition
from window_consumer.engine.retry.failed_record import FailedRecord
from window_consumer.engine.turn import CopyTo, Finish, HoldUntilReleased, Turn
from window_consumer.model.outcome import Outcome
from window_consumer.model.record import Message, TopicPartition
from window_consumer.parking.index import Lane, Place
from window_consumer.parking.rules import Parking
from window_consumer.parking.scans import LadderContents, LadderCopy, LadderScans


class StartsFollowersAtOnce(Parking):
    """A copy starts whatever is before it."""

    def _copy_turn(self, partition: Partition, message: Message) -> Turn | None:
        turn = super()._copy_turn(partition, message)
        return None if isinstance(turn, HoldUntilReleased) else turn


class LosesTheEntryAtTheCopy(Parking):
    """A parked record is not outstanding."""

    def left(self, failed: FailedRecord, outcome: Outcome, now: float) -> None:
        if outcome is not Outcome.PARKED:
            super().left(failed, outcome, now)


class CountsRotations(Parking):
    """A record that is rotated is outstanding once more."""

    def left(self, failed: FailedRecord, outcome: Outcome, now: float) -> None:
        super().left(failed, outcome, now)
        key = failed.message.key()
        if outcome is Outcome.ROTATED and key is not None:
            self.indexes[failed.partition.home].enter(key, failed.hop.offset, now)


class ParksBeforeTheAck(Parking):
    """A successor counts as parked when its copy would be sent."""

    def _source_turn(self, partition: Partition, message: Message) -> Turn | None:
        turn = super()._source_turn(partition, message)
        return Finish(Outcome.PARKED) if isinstance(turn, CopyTo) else turn


class CallsSuccessors(Parking):
    """The records of the source overtake the ladder."""

    def _source_turn(self, partition: Partition, message: Message) -> Turn | None:
        turn = super()._source_turn(partition, message)
        return None if isinstance(turn, CopyTo) else turn


class ReleasesNobody(Parking):
    """Held records are held forever."""

    def _start(self, home: TopicPartition, lane: Lane, places: Collection[Place]) -> None:
        """Start nothing."""


class KeepsWhatHasFinished(Parking):
    """Records that an earlier assignment has finished remain outstanding."""

    def _remove_finished(self, partition: Partition) -> None:
        """Remove nothing."""


class CopiesAgain(Parking):
    """A record whose copy is in the ladder already is called."""

    def _source_turn(self, partition: Partition, message: Message) -> Turn | None:
        turn = super()._source_turn(partition, message)
        return None if isinstance(turn, Finish) else turn


class ScansNothing(LadderScans):
    """The index begins empty."""

    def take(self, home: TopicPartition) -> LadderContents | None:
        super().take(home)
        return None


class ForgetsTopicIds(LadderScans):
    """Copies of a topic's records from before it was recreated count as those of its new ones."""

    def take(self, home: TopicPartition) -> LadderContents | None:
        found = super().take(home)
        if found is None:
            return None
        return {
            name: [each._replace(topic_id=None) for each in copies]
            for name, copies in found.items()
        }


class ScansOnlyLevels(LadderScans):
    """Parked records are not found."""

    def take(self, home: TopicPartition) -> LadderContents | None:
        found = super().take(home)
        if found is None:
            return None
        return {name: each for name, each in found.items() if not name.topic.endswith(".park")}


class ScansOnlyParked(LadderScans):
    """The heads in the levels are not found."""

    def take(self, home: TopicPartition) -> LadderContents | None:
        found = super().take(home)
        if found is None:
            return None
        return {name: each for name, each in found.items() if name.topic.endswith(".park")}


class CallsFollowers(Parking):
    """Records that wait behind a dead head start."""

    def _start(self, home: TopicPartition, lane: Lane, places: Collection[Place]) -> None:
        del home, lane
        for place in places:
            self._release(*place, None)


class ForgetsTheDead(LadderScans):
    """Nothing of the ladder follows a dead head."""

    def take(self, home: TopicPartition) -> LadderContents | None:
        found = super().take(home)
        if found is None:
            return None
        return {name: [_unmarked(each) for each in copies] for name, copies in found.items()}


def _unmarked(copy: LadderCopy) -> LadderCopy:
    return copy._replace(follows=None)
