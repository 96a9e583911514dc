"""The rule of parking at each record's turn, which follows the outcomes.

A source record whose lane is in the ladder is copied to the park topic. A copy in the ladder is
held until it is the first of its lane, and a source record while there is no room. A held record
that follows a dead head then leaves instead of being called. Each question may be repeated: only
deliveries and outcomes change the index.

A parked record holds its lane until its copy is acked, and siblings share lanes. So the copy's turn
comes only after the index has its offset. For the same reason, if a record has two copies because a
process was killed before it committed, they run one after the other.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from itertools import islice
from typing import Final

from attrs import frozen

from window_consumer.engine.partition import Partition
from window_consumer.engine.retry.failed_record import FailedRecord
from window_consumer.engine.scheduling.slices import Slice
from window_consumer.engine.turn import (
    CopyTo,
    Finish,
    HoldUntilReleased,
    Leave,
    Release,
    Turn,
    TurnRule,
)
from window_consumer.engine.windows_snapshot import ParkedKey, ParkedKeys, key_text
from window_consumer.model.outcome import Outcome
from window_consumer.model.record import Message, TopicPartition
from window_consumer.parking.dead_head import follow
from window_consumer.parking.index import LadderIndex, Lane, ParkLimits, Place, SourceTurn
from window_consumer.parking.lost_copies import LostCopies, left_of
from window_consumer.parking.rotation import Rotation
from window_consumer.parking.scans import (
    LadderContents,
    LadderCopy,
    LadderScans,
    finished,
    in_lanes,
    of_ladder,
)

_SHOWN_KEYS: Final = 20

_LOOKED_AT: Final = 1000
"""The most lanes that a snapshot visits, over all partitions: a page takes five snapshots a
second."""


@frozen
class ParkingFigures:
    """The figures of a worker's ladders."""

    keys: int
    followers: int
    """Records that wait behind the first one of their key."""


class Parking(TurnRule):
    """Keeps the lanes in one worker's ladders in order. Owner: poll thread."""

    def __init__(
        self,
        limits: ParkLimits,
        park: Callable[[Partition, Message], CopyTo] | None,
        scans: LadderScans,
        *,
        follows: bool = False,
    ):
        """``follows``: records behind a dead head go to the dead letters, too."""
        self._limits = limits
        self._park = park
        """Returns the copy of a record for the park topic; its outcome is PARKED. None if the
        worker no longer parks and only keeps the order of records already in the park topics."""
        self._scans = scans
        self._follows = follows
        self._scanned: dict[TopicPartition, Sequence[LadderCopy]] = {}
        """The copies that a scan entered, by partition of the ladder, until that is assigned."""
        self.indexes: dict[TopicPartition, LadderIndex] = {}
        """By source partition."""
        self._sources: dict[TopicPartition, Partition] = {}
        self._lost = LostCopies(scans)
        self._left: set[TopicPartition] = set()
        """Partitions of ladders that were released while their source was not."""
        self._rotations: dict[TopicPartition, Rotation] = {}
        """By partition of the ladder."""
        self._now = 0.0
        """The time of the present turns."""

    def figures(self) -> ParkingFigures:
        """Return the ladders' figures. Any thread may call it; partitions may be a tick apart."""
        indexes = tuple(self.indexes.values())
        keys = sum(map(len, indexes))
        return ParkingFigures(keys, max(0, sum(index.records for index in indexes) - keys))

    def parked(self, now: float) -> ParkedKeys:
        """See ``TurnRule``."""
        most = max(_SHOWN_KEYS, _LOOKED_AT // max(1, len(self.indexes)))
        lanes = (
            (home, lane)
            for home, index in self.indexes.items()
            for lane in islice(index.parked(), most)
            if lane.followers
        )
        longest = tuple(
            ParkedKey(
                home,
                lane.head,
                key_text(lane.lane[0] if isinstance(lane.lane, tuple) else lane.lane),
                max(0.0, now - lane.since),
                lane.followers,
                "" if lane.place is None else _as_argument(*lane.place),
            )
            for home, lane in heapq.nsmallest(_SHOWN_KEYS, lanes, key=lambda each: each[1].since)
        )
        figures = self.figures()
        return ParkedKeys(figures.keys, figures.followers, longest)

    # ---- a rule

    def begin(self, release: Release) -> None:
        """See ``TurnRule``."""
        self._release = release
        self.indexes.clear()
        self._sources.clear()
        self._scans.clear()
        self._lost.clear()

    def tick(self, now: float) -> None:
        """See ``TurnRule``. Starts records that waited for others without any copy left."""
        del now
        for home, contents in self._lost.complete():
            index, source = self.indexes.get(home), self._sources.get(home)
            if index is not None and source is not None:
                left = left_of(source, in_lanes(contents, source.topic_id))
                for lane, places in index.keep_only(left):
                    self._start(home, lane, places)

    def turns(
        self, partition: Partition, messages: Sequence[Message], now: float, wall_ms: float
    ) -> Mapping[int, Turn]:
        """See ``TurnRule``."""
        del wall_ms
        self._now = now
        index = self.indexes.get(partition.home)
        is_copy = partition.retry_level.is_copy
        if not (is_copy or index):
            return {}
        turn_of = self._copy_turn if is_copy else self._source_turn
        found = {at: turn_of(partition, message) for at, message in enumerate(messages)}
        return {at: turn for at, turn in found.items() if turn is not None}

    def rotated(
        self, partition: Partition, held: Iterable[Message], now: float
    ) -> Sequence[tuple[int, CopyTo]]:
        """See ``TurnRule``. It makes room if a startable record may be behind the window.

        Behind a level's window that may be a record that was put back and has failed again.
        """
        index, level = self.indexes.get(partition.home), partition.retry_level
        if not level.is_copy or index is None or not (level.level or index.has_unread_head):
            return ()
        rotation = self._rotations.setdefault(partition.name, Rotation())
        return list(rotation.copies(partition, held, lambda record: index.copies(*record), now))

    def _source_turn(self, partition: Partition, message: Message) -> Turn | None:
        index, offset = self.indexes[partition.home], message.offset()
        match index.at_turn(message.key(), offset, (partition.name, offset), self._now):
            case SourceTurn.CALL:
                return self._turn_of_first(partition, message.key(), offset)
            case SourceTurn.FINISH:
                return Finish(Outcome.PARKED)
            case SourceTurn.PARK:
                return None if self._park is None else self._park(partition, message)
            case SourceTurn.HOLD:
                return HoldUntilReleased()

    def _copy_turn(self, partition: Partition, message: Message) -> Turn | None:
        record = of_ladder(partition, message)
        if record is None:
            return None
        index = self._index(partition)
        index.deliver(*record, (partition.name, message.offset()), self._now)
        return (
            self._turn_of_first(partition, *record)
            if index.may_start(*record)
            else HoldUntilReleased()
        )

    def _turn_of_first(self, partition: Partition, lane: Lane | None, offset: int) -> Leave | None:
        """Return what happens to a record that may start; None if it is called."""
        if lane is None:
            return None
        return follow(partition.home, self.indexes[partition.home].dead_head_of(lane, offset))

    # ---- an observer

    def assigned(self, partition: Partition, now: float) -> None:
        """See ``Observer``. Removes copies that the scan found and this partition has finished."""
        if partition.retry_level.is_copy:
            if partition.name in self._left:
                self._left.remove(partition.name)
                self._check_ladder(partition)
        else:
            self._sources[partition.name] = partition
            contents = self._scans.take(partition.home)
            if contents is not None:
                self._enter(partition.home, in_lanes(contents, partition.topic_id), now)
        for each in (partition, *partition.siblings):
            self._remove_finished(each)

    def gone(self, partition: Partition, offsets: Sequence[range], now: float) -> None:
        """See ``Observer``."""
        del offsets, now
        if partition.retry_level.is_copy:
            self._check_ladder(partition)

    def _check_ladder(self, partition: Partition) -> None:
        """Find the remaining copies of a ladder that has lost some."""
        if index := self.indexes.get(partition.home):
            index.watch()
            self._lost.check(partition.home)

    def _remove_finished(self, partition: Partition) -> None:
        copies = self._scanned.pop(partition.name, ())
        index = self.indexes.get(partition.home)
        if not (index and copies):
            return
        for copy in finished(partition, copies):
            places = index.remove(copy.lane, copy.offset)
            self._start(partition.home, copy.lane, places)

    def _enter(self, home: TopicPartition, contents: LadderContents, now: float) -> None:
        index = self.indexes[home] = LadderIndex(self._limits)
        self._scanned.update(contents)
        for name, copies in contents.items():
            climbs = self._scans.is_level(name)
            for copy in copies:
                index.enter(copy.lane, copy.offset, now)
                if climbs:
                    index.climb(copy.lane, copy.offset)
                if copy.follows is not None:
                    index.follow(copy.lane, copy.offset, copy.follows)

    def left(self, failed: FailedRecord, outcome: Outcome, now: float) -> None:
        """See ``Observer``."""
        partition, message = failed.partition, failed.message
        record = of_ladder(partition, message)
        if record is None:
            return
        index, place = self._index(partition), (partition.name, message.offset())
        is_copy = partition.retry_level.is_copy
        if outcome.end != "moved":
            is_dead = self._follows and outcome is Outcome.DEAD_LETTERED
            places = index.end(*record, place, is_dead=is_dead, is_copy=is_copy)
            self._start(partition.home, record[0], places)
            return
        is_known = index.move(*record, place) or (is_copy and index.has_unread(*record))
        if not is_known and self._park is not None:
            index.enter(*record, now)
        if failed.level is not None:
            index.climb(*record)

    def finished(
        self,
        partition: Partition,
        messages: Sequence[Message],
        outcome: Outcome,
        slice_: Slice | None,
        now: float,
    ) -> None:
        """See ``Observer``."""
        del slice_, now, outcome
        index, is_copy = self.indexes.get(partition.home), partition.retry_level.is_copy
        if not index or not (index.has_places or is_copy):
            return
        for message in messages:
            record = of_ladder(partition, message)
            if record is not None:
                place = partition.name, message.offset()
                places = index.end(*record, place, is_copy=is_copy)
                self._start(partition.home, record[0], places)

    def given_up(self, partition: Partition, now: float) -> None:
        """See ``Observer``."""
        del now
        self._scans.remove(partition.name)
        self._rotations.pop(partition.name, None)
        self._scanned.pop(partition.name, None)
        if not partition.retry_level.is_copy:
            self.indexes.pop(partition.home, None)
            self._sources.pop(partition.home, None)
            self._lost.remove(partition.home)
            self._left.difference_update([each.name for each in partition.siblings])
        elif index := self.indexes.get(partition.home):
            index.remove_partition(partition.name)
            self._left.add(partition.name)

    def _index(self, partition: Partition) -> LadderIndex:
        return self.indexes.setdefault(partition.home, LadderIndex(self._limits))

    def _start(self, home: TopicPartition, lane: Lane, places: Collection[Place]) -> None:
        """Let the first record of a lane start, at all of its places."""
        if places:
            leave = follow(home, self.indexes[home].dead_head_of(lane))
            for place in sorted(places):
                self._release(*place, leave)


def _as_argument(name: TopicPartition, offset: int) -> str:
    return f"{name.topic}/{name.partition}/{offset}"
