"""Copies that disappeared from a ladder before they were read: by retention, or with their topic.

Their records would stay outstanding and hold their lanes until the next assignment. Nothing shows
which records they were. So the ladder is read again, and a record without any copy left, in a log
or in a window, is no longer outstanding.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from concurrent.futures import Future
from itertools import chain

from attrs import define, field

from window_consumer.engine.partition import Partition
from window_consumer.model.record import TopicPartition
from window_consumer.parking.index import Lane, Place
from window_consumer.parking.scans import LadderContents, LadderScans, finished, of_ladder

LeftCopies = Mapping[tuple[Lane, int], set[Place]]
"""The places of the remaining copies, by lane and original offset."""


@define
class LostCopies:
    """Finds the remaining copies of ladders that have lost some. Owner: poll thread."""

    _scans: LadderScans
    _checks: dict[TopicPartition, Future[None]] = field(factory=dict, init=False)
    """The scans that are not complete, by source partition."""

    def check(self, home: TopicPartition) -> None:
        """Read a ladder again."""
        self._checks[home] = self._scans.scan_again(home)

    def remove(self, home: TopicPartition) -> None:
        """Drop the check of a source partition that is released."""
        self._checks.pop(home, None)

    def clear(self) -> None:
        """Drop everything: the worker restarts."""
        self._checks.clear()

    def complete(self) -> Iterator[tuple[TopicPartition, LadderContents]]:
        """Yield the remaining copies of the ladders that have been read again.

        A scan that fails is repeated: the client's log says why.
        """
        for home, scan in list(self._checks.items()):
            if not scan.done():
                continue
            if scan.cancelled() or scan.exception() is not None:
                self.check(home)
            else:
                del self._checks[home]
                yield home, self._scans.take(home) or {}


def left_of(source: Partition, contents: LadderContents) -> LeftCopies:
    """Return the places of a source partition's remaining copies: in a log, or delivered."""
    left: dict[tuple[Lane, int], set[Place]] = {}
    ladder = {each.name: each for each in source.siblings}
    for name, copies in contents.items():
        over = set(finished(ladder[name], copies)) if name in ladder else set()
        for copy in copies:
            if copy not in over:
                left.setdefault((copy.lane, copy.offset), set()).add((name, copy.at))
    for partition in ladder.values():
        buffered = chain.from_iterable(messages for _, messages in partition.buffer)
        waiting = (message for _, message in partition.ordering.waiting())
        for message in chain(buffered, waiting):
            record = of_ladder(partition, message)
            if record is not None:
                left.setdefault(record, set()).add((partition.name, message.offset()))
    return left
