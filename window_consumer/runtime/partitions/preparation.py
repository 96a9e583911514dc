"""Preparations before a partition starts, such as an index of its records in other topics.

They run elsewhere while the partition stays paused: nothing of it is read or called, and its offset
is read afterwards. Other partitions start in the meantime.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from concurrent.futures import Future
from typing import Protocol

from attrs import define, field

from window_consumer.model.log_events import LogEvent, Warn
from window_consumer.model.record import TopicPartition

AGAIN_S = 1.0
"""The delay before a failed preparation begins again."""

SLOW_S = 10.0
"""After this time the log names the preparations that a partition waits for."""


class PartitionPreparation(Protocol):
    """Prepares one thing for each partition. Owner: poll thread; it must not block."""

    @property
    def subject(self) -> str:
        """The name of its result, for messages."""

    def begin(self, name: TopicPartition) -> Future[None]:
        """Begin for an assigned partition, and return at once.

        The future is cancelled if the partition is given up. If it ends with an exception, that is
        logged and ``begin`` is called again. If nothing is needed, the future is already done.
        """

    def remove(self, name: TopicPartition) -> None:
        """Drop the result for a partition that is no longer ours, if there is one."""


@define
class _Preparing:
    """A waiting partition."""

    since: float
    futures: list[tuple[str, Future[None]]] = field(factory=list)
    """Its preparations and their futures."""
    begin_at: float = 0.0
    """When it is retried after a failure."""
    reason: str = ""
    """The last failure."""
    is_slow: bool = False
    """Whether the log has reported that it takes long."""


class PartitionPreparations:
    """The preparations of one worker's partitions. Owner: poll thread."""

    def __init__(self, each: Sequence[PartitionPreparation], warn: Warn):
        self._each = each
        self._warn = warn
        self._preparing: dict[TopicPartition, _Preparing] = {}
        self._ready: set[TopicPartition] = set()

    def begin(self, names: Iterable[TopicPartition], now: float) -> list[TopicPartition]:
        """Prepare partitions; return those that may start now."""
        if not self._each:
            return list(names)
        given = list(names)
        for name in given:
            if name not in self._ready and name not in self._preparing:
                self._preparing[name] = self._begin(name, _Preparing(now))
        return [name for name in given if name in self._ready or self._advance(name, now)]

    def advance(self, now: float) -> list[TopicPartition]:
        """Return the partitions that may start since the last call."""
        return [name for name in list(self._preparing) if self._advance(name, now)]

    def remove(self, names: Iterable[TopicPartition]) -> None:
        """Cancel the preparations of partitions that are no longer ours."""
        for name in names:
            self._ready.discard(name)
            for each in self._each:
                each.remove(name)
            preparing = self._preparing.pop(name, None)
            if preparing is not None:
                _cancel(preparing)

    def cancel(self) -> None:
        """Cancel everything: the worker ends."""
        self.remove(list(self._preparing))

    def _begin(self, name: TopicPartition, preparing: _Preparing) -> _Preparing:
        preparing.futures = [(each.subject, each.begin(name)) for each in self._each]
        return preparing

    def _advance(self, name: TopicPartition, now: float) -> bool:
        """Return whether a partition has become ready; begin again after a failure."""
        preparing = self._preparing[name]
        if not preparing.futures and now >= preparing.begin_at:
            self._begin(name, preparing)
        if failure := next(filter(None, map(_failure, preparing.futures)), ""):
            self._fail(name, preparing, failure, now)
        elif preparing.futures and all(future.done() for _, future in preparing.futures):
            del self._preparing[name]
            self._ready.add(name)
            return True
        elif preparing.futures and not preparing.is_slow and now - preparing.since >= SLOW_S:
            preparing.is_slow = True
            self._report(name, f"waits for {_unfinished(preparing)}")
        return False

    def _fail(self, name: TopicPartition, preparing: _Preparing, failure: str, now: float) -> None:
        _cancel(preparing)
        preparing.futures, preparing.begin_at = [], now + AGAIN_S
        if failure != preparing.reason:
            preparing.reason = failure
            self._report(name, f"trying again: {failure}")

    def _report(self, name: TopicPartition, what: str) -> None:
        self._warn(LogEvent.PARTITION_POSTPONED, f"{name}: cannot begin yet, {what}")


def _failure(preparation: tuple[str, Future[None]]) -> str:
    """Return why a preparation failed; empty if it did not."""
    subject, future = preparation
    if not future.done():
        return ""
    if future.cancelled():
        return f"{subject}: was cancelled"
    error = future.exception()
    return "" if error is None else f"{subject}: {error}"


def _unfinished(preparing: _Preparing) -> str:
    """Name the unfinished preparations."""
    return ", ".join(subject for subject, future in preparing.futures if not future.done())


def _cancel(preparing: _Preparing) -> None:
    for _, future in preparing.futures:
        future.cancel()
