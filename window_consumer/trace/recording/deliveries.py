"""When the open records of one partition were delivered, and which of them are traced."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Sequence

from window_consumer.engine.partition import Partition
from window_consumer.engine.scheduling.key_ordering import ByKey
from window_consumer.engine.scheduling.shares.class_ordering import ClassOrdering
from window_consumer.model import copy_headers
from window_consumer.model.outcome import Outcome
from window_consumer.model.record import Message
from window_consumer.model.record_identity import given_id
from window_consumer.trace.recording.inbox import EventGroup, SingleRecords
from window_consumer.trace.sampling import Sampling, seed_of

Durations = int | Sequence[int | None] | None
"""Microseconds, per record or for all; None if unknown."""


_FORGET_EVERY = 64
"""How many deliveries pass between clean-ups."""

Kind = tuple[Outcome, int | None, str | None]
"""The outcome of records, their attempt and their handler."""


class Deliveries:
    """The trace's state for one assignment of a partition. Owner: poll thread.

    It keeps a few numbers for each delivery, and with sampling for each traced record, until the
    window has passed them.
    """

    def __init__(self, partition: Partition, sampling: Sampling):
        self.topic, self.partition = partition.name
        self.retry_level = partition.retry_level
        self.groups: dict[Kind, EventGroup] = {}
        """The shared fields of its events, built once per kind."""
        self.lines: dict[Kind, SingleRecords] = {}
        """The queues for records of a kind that complete one by one."""
        self._sampling = sampling
        self._takes_all = sampling.takes_all
        self._seed = seed_of(*partition.name)
        self._shuffles = isinstance(partition.ordering.plain, ByKey | ClassOrdering)
        self._firsts: list[int] = []
        self._lasts: list[int] = []
        self._times: list[float] = []
        self._chosen: list[int] = []
        self._window = partition.window
        self._forget_at = _FORGET_EVERY

    def add(self, messages: Sequence[Message], now: float) -> Sequence[Message]:
        """Record a delivery; return its traced records."""
        if len(self._firsts) >= self._forget_at:
            self._drop_before(self._window.next_offset)
            self._forget_at = max(_FORGET_EVERY, 2 * len(self._firsts))
        self._firsts.append(messages[0].offset())
        self._lasts.append(messages[-1].offset())
        self._times.append(now)
        if self._sampling.takes_all:
            return messages
        chosen = self._choose(messages)
        self._chosen += [message.offset() for message in chosen]
        return chosen

    def _choose(self, messages: Sequence[Message]) -> list[Message]:
        sampling, kind = self._sampling, type(messages[0])
        if sampling.takes_none:
            return []
        if sampling.by == "key":
            keys = list(map(kind.key, messages))
            return [messages[i] for i in sampling.chosen_by_name(keys)]
        given = list(map(kind.headers, messages))
        if any(given):
            return [
                message
                for message, pairs in zip(messages, given, strict=True)
                if self._takes(message, pairs)
            ]
        first = messages[0].offset()
        stop = messages[-1].offset() + 1  # an offset range, which may have holes
        return _at(messages, sampling.places(self._seed, first, stop))

    def _takes(self, message: Message, pairs: Sequence[tuple[str, bytes | None]] | None) -> bool:
        """Return whether a record, which may have its own id, is traced."""
        sampling = self._sampling
        if self.retry_level.is_copy:
            before = copy_headers.of_copy(message)
            place = f"{before.origin.topic}/{before.origin.partition}/{before.offset}"
            if before.record_id == place.encode():
                return sampling.takes_place(seed_of(*before.origin), before.offset)
            return sampling.takes(before.record_id)
        name = given_id(pairs)
        if name:
            return sampling.takes(name)
        return sampling.takes_place(self._seed, message.offset())

    def traced(self, messages: Sequence[Message]) -> Sequence[Message]:
        """Return the traced ones of a slice's records."""
        if self._takes_all:
            return messages
        chosen = self._chosen
        if not chosen:
            return []
        if not self._shuffles:
            first, last = messages[0].offset(), messages[-1].offset()
            wanted = chosen[bisect_left(chosen, first) : bisect_right(chosen, last)]
            if last - first == len(messages) - 1:
                found = [messages[offset - first] for offset in wanted]
                if [message.offset() for message in found] == wanted:
                    return found
        offsets = map(type(messages[0]).offset, messages)
        known = set(chosen)
        return [
            message for message, offset in zip(messages, offsets, strict=True) if offset in known
        ]

    def durations_us(self, messages: Sequence[Message], now: float) -> Durations:
        """Return how long ago records were delivered: one number if all arrived together.

        None stands for records that are no longer known.
        """
        first = self._duration_us(messages[0], now)
        if len(messages) == 1:
            return first
        if not self._shuffles and first == self._duration_us(messages[-1], now):
            return first
        return [self._duration_us(message, now) for message in messages]

    def came(self, message: Message) -> float | None:
        """Return when a record was delivered, in monotonic seconds; None if unknown."""
        offset = message.offset()
        index = bisect_right(self._firsts, offset) - 1
        if index < 0 or self._lasts[index] < offset:
            return None
        return self._times[index]

    def _duration_us(self, message: Message, now: float) -> int | None:
        came = self.came(message)
        return None if came is None else max(0, int((now - came) * 1e6))

    def _drop_before(self, next_offset: int) -> None:
        """Drop the entries before an offset, which are finished."""
        old = bisect_right(self._firsts, next_offset) - 1
        if old > 0:
            del self._firsts[:old], self._lasts[:old], self._times[:old]
        del self._chosen[: bisect_left(self._chosen, next_offset)]


def _at(messages: Sequence[Message], offsets: Sequence[int]) -> list[Message]:
    """Return the records that exist at these offsets; ``messages`` are ordered by offset."""
    found = []
    first = messages[0].offset()
    for offset in offsets:
        index = min(offset - first, len(messages) - 1)
        if messages[index].offset() != offset:  # offsets have holes
            index = bisect_left(messages, offset, hi=index, key=_offset)
        if messages[index].offset() == offset:
            found.append(messages[index])
    return found


def _offset(message: Message) -> int:
    return int(message.offset())
