"""What the ladder holds of a source partition, read before anything of that partition starts.

The partitions of a ladder and their source have one owner. When all of them are assigned, one scan
reads the ladder's from the committed offset to the end: only lanes and offsets are kept. An empty
ladder costs one question about its lag.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from concurrent.futures import Future
from threading import Lock, Thread
from typing import NamedTuple, Protocol

from window_consumer.model.record import TopicPartition
from window_consumer.parking.index import Lane


class LadderCopy(NamedTuple):
    """One copy in the ladder."""

    at: int
    """Its own offset."""
    lane: Lane
    offset: int
    """That of the first delivery."""


LadderContents = Mapping[TopicPartition, Sequence[LadderCopy]]
"""The copies from the committed offset to the end, by partition of the ladder."""


class LadderReader(Protocol):
    """Knows and reads the ladders of one worker."""

    def home_of(self, name: TopicPartition) -> TopicPartition | None:
        """Return the source partition of a partition; None if the worker reads none."""

    def ladder_of(self, home: TopicPartition) -> Collection[TopicPartition]:
        """Return the partitions with copies of a source partition's records."""

    def read(self, names: Collection[TopicPartition]) -> LadderContents:
        """Read partitions of the ladder, which takes a while; may raise anything."""


class LadderScans:
    """Scans ladders, for one worker. Owner: poll thread; it reads on ``wc-park-scan``."""

    subject = "the keys in the ladder"

    def __init__(self, reader: LadderReader):
        self._reader = reader
        self._owned: dict[TopicPartition, dict[TopicPartition, Future[None]]] = {}
        """By source partition: what is assigned of it and its ladder."""
        self._lock = Lock()
        self._waiting: list[TopicPartition] = []
        """Source partitions whose ladders are scanned next."""
        self._is_reading = False
        self._found: dict[TopicPartition, LadderContents] = {}

    def begin(self, name: TopicPartition) -> Future[None]:
        """See ``PartitionPreparation``."""
        future: Future[None] = Future()
        home = self._reader.home_of(name)
        if home is None:
            future.set_result(None)
            return future
        with self._lock:
            owned = self._owned.setdefault(home, {})
            for other in [each for each, its in owned.items() if its.cancelled()]:
                del owned[other]
            owned[name] = future
            if name == home:
                self._found.pop(home, None)
            elif home in owned and owned[home].done():
                future.set_result(None)  # what it holds is known, or is new
                return future
            if home in owned and owned.keys() >= set(self._reader.ladder_of(home)):
                self._waiting.append(home)
                if not self._is_reading:
                    self._is_reading = True
                    Thread(target=self._read, name="wc-park-scan", daemon=True).start()
        return future

    def take(self, home: TopicPartition) -> LadderContents | None:
        """Return what was found of a source partition since its assignment, once."""
        return self._found.pop(home, None)

    def remove(self, name: TopicPartition) -> None:
        """Record that a partition is released."""
        home = self._reader.home_of(name)
        if home is not None:
            self._owned.get(home, {}).pop(name, None)

    def clear(self) -> None:
        """Forget all partitions: the worker starts anew."""
        with self._lock:
            self._owned.clear()
            self._found.clear()

    # ---- on its own thread

    def _read(self) -> None:
        while True:
            with self._lock:
                homes, self._waiting = list(dict.fromkeys(self._waiting)), []
                if not homes:
                    self._is_reading = False
                    return
            ladders = {home: tuple(self._reader.ladder_of(home)) for home in homes}
            error: Exception | None = None
            found: LadderContents = {}
            try:
                found = self._reader.read([name for names in ladders.values() for name in names])
            except Exception as exception:  # the partition's preparation reports it
                error = exception
            with self._lock:
                for home, names in ladders.items():
                    self._found[home] = {name: found[name] for name in names if name in found}
                    self._end(self._owned.get(home, {}), error)

    @staticmethod
    def _end(owned: dict[TopicPartition, Future[None]], error: Exception | None) -> None:
        for name, future in list(owned.items()):
            if future.done() or not future.set_running_or_notify_cancel():
                continue
            if error is None:
                future.set_result(None)
            else:
                del owned[name]
                future.set_exception(error)
