"""The ladder's copies of a source partition's records, read before that partition starts.

A ladder's partitions and their source have one owner, and copies start only while their source is
assigned. When all of them are assigned, one scan reads the ladder's partitions from the committed
offset to the end and keeps only lanes and offsets. An empty ladder costs one query of its lag.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from threading import Condition, Thread
from typing import NamedTuple, Protocol

from window_consumer.engine.partition import Partition
from window_consumer.model.record import Message, TopicPartition
from window_consumer.parking.index import Lane


class LadderCopy(NamedTuple):
    """One copy in the ladder."""

    at: int
    """Its own offset."""
    lane: Lane
    offset: int
    """The offset of the first delivery."""
    written: float = 0.0
    """When it was written, in milliseconds since 1970."""
    follows: int | None = None
    """The dead head that it follows."""
    topic_id: bytes | None = None
    """The id that its source topic had then; None if the copy has none."""


LadderContents = Mapping[TopicPartition, Sequence[LadderCopy]]
"""The copies from the committed offset to the end, by partition of the ladder."""


class LadderReader(Protocol):
    """Finds and reads the ladders of one worker."""

    def home_of(self, name: TopicPartition) -> TopicPartition | None:
        """Return the source partition of a partition; None if the worker reads none."""

    def ladder_of(self, home: TopicPartition) -> Collection[TopicPartition]:
        """Return the partitions with copies of a source partition's records."""

    def is_level(self, name: TopicPartition) -> bool:
        """Return whether the records of a partition wait there until they are due."""

    def read(self, partitions: Collection[TopicPartition]) -> LadderContents:
        """Read partitions of the ladder; takes a while, and may raise anything."""


def of_ladder(partition: Partition, message: Message) -> tuple[Lane, int] | None:
    """Return the lane and the original offset of a record; None if it has no order.

    A stray does not belong to its partition.
    """
    key = message.key()
    if key is None:
        return None
    if not partition.retry_level.is_copy:
        return key, message.offset()
    hop = partition.retry_level.hop_of(message)
    if hop.origin != partition.home:
        return None
    source = next((each for each in partition.siblings if not each.retry_level.is_copy), None)
    return _lane_of(key, hop.topic_id, None if source is None else source.topic_id), hop.offset


def in_lanes(contents: LadderContents, topic_id: str | None) -> LadderContents:
    """Return copies in their lanes, for a source topic whose present id is this."""
    return {
        name: [
            copy._replace(lane=_lane_of(copy.lane, copy.topic_id, topic_id))
            if copy.topic_id
            else copy
            for copy in copies
        ]
        for name, copies in contents.items()
    }


def _lane_of(key: Lane, topic_id: bytes | None, current: str | None) -> Lane:
    """Return the lane of a copy, from its source topic's ids then and now.

    A recreated topic uses the same offsets again, so records of the deleted one have lanes of their
    own. A copy without an id belongs to the current topic.
    """
    is_current = not topic_id or not current or topic_id == current.encode()
    return key if is_current else (key, topic_id)


def finished(partition: Partition, copies: Iterable[LadderCopy]) -> Iterator[LadderCopy]:
    """Yield the partition's copies that have finished, in this assignment or before."""
    ranges, begins = list(partition.finished_ranges()), partition.window.next_offset
    for copy in copies:
        if copy.at < begins or any(copy.at in each for each in ranges):
            yield copy


LOOK_S = 0.5
"""How often it checks whether a ladder is complete while partitions wait for it."""

OWN_S = 10.0
"""How long a source partition waits for its ladder's partitions. While the levels of a group
change, another member may have some of them, and starts nothing there."""


def _start(run: Callable[[], None]) -> None:
    Thread(target=run, name="wc-park-scan", daemon=True).start()


class LadderScans:
    """Scans ladders, for one worker. Owner: poll thread; it reads on ``wc-park-scan``."""

    subject = "the keys in the ladder"

    def __init__(
        self,
        reader: LadderReader,
        start: Callable[[Callable[[], None]], None] = _start,
        now: Callable[[], float] = time.monotonic,
    ):
        self._reader = reader
        self._start = start
        """Starts the thread that runs a function."""
        self._now = now
        self._changed = Condition()
        """Guards the fields below."""
        self._owned: set[TopicPartition] = set()
        """The assigned partitions of sources and ladders."""
        self._waiting: dict[TopicPartition, tuple[float, Future[None]]] = {}
        """Waiting source partitions, and until when they wait for their ladders."""
        self._is_reading = False
        self._found: dict[TopicPartition, LadderContents] = {}

    def begin(self, name: TopicPartition) -> Future[None]:
        """See ``PartitionPreparation``. Copies start with their source, so they need not wait."""
        with self._changed:
            self._owned.add(name)
            self._changed.notify()
        if self._reader.home_of(name) == name:
            return self._scan(name, self._now() + OWN_S)
        future: Future[None] = Future()
        future.set_result(None)
        return future

    def scan_again(self, home: TopicPartition) -> Future[None]:
        """Scan a ladder again, whoever owns its partitions; ``take`` returns the result."""
        return self._scan(home, float("-inf"))

    def _scan(self, home: TopicPartition, until: float) -> Future[None]:
        future: Future[None] = Future()
        with self._changed:
            self._found.pop(home, None)
            self._waiting[home] = until, future
            starts, self._is_reading = not self._is_reading, True
            self._changed.notify()
        if starts:
            self._start(self._read)
        return future

    def take(self, home: TopicPartition) -> LadderContents | None:
        """Return, once, the copies of a source partition's records found since its assignment."""
        return self._found.pop(home, None)

    def is_level(self, name: TopicPartition) -> bool:
        """Return whether the records of a partition wait there until they are due."""
        return self._reader.is_level(name)

    def remove(self, name: TopicPartition) -> None:
        """Record that a partition is released."""
        with self._changed:
            self._owned.discard(name)

    def clear(self) -> None:
        """Drop all partitions: the worker restarts."""
        with self._changed:
            self._owned.clear()
            self._waiting.clear()
            self._found.clear()

    # ---- on its own thread

    def _read(self) -> None:
        while self.scan_complete():
            with self._changed:
                self._changed.wait(LOOK_S)

    def scan_complete(self) -> bool:
        """Scan the ladders whose partitions are all assigned; return False if no partition waits.

        Which topics belong to a ladder may change while they wait.
        """
        with self._changed:
            self._waiting = {
                home: wait for home, wait in self._waiting.items() if not wait[1].cancelled()
            }
            if not self._waiting:
                self._is_reading = False
                return False
            complete: dict[TopicPartition, tuple[Future[None], Collection[TopicPartition]]] = {}
            for home, (until, future) in list(self._waiting.items()):
                names = self._reader.ladder_of(home)
                if self._owned.issuperset(names) or self._now() > until:
                    complete[home] = future, names
                    del self._waiting[home]
        error: Exception | None = None
        found: LadderContents = {}
        try:
            found = self._reader.read(
                sorted(each for _, names in complete.values() for each in names)
            )
        except Exception as exception:  # the caller repeats the scan
            error = exception
        for home, (future, names) in complete.items():
            with self._changed:
                self._found[home] = {name: found[name] for name in names if name in found}
            if future.set_running_or_notify_cancel():
                if error is None:
                    future.set_result(None)
                else:
                    future.set_exception(error)
        return True
