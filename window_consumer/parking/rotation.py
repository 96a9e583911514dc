"""Rotation: what waits at the start of a full window of the ladder is copied to its topic's end.

A window full of records that may not start hides those behind it, and the head of another lane may
be among them. So the first ones make room, unchanged, and come again at the end. Each is copied at
most once in ``AGAIN_S``: a park topic in which nobody is found is copied no more often than that.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final

from attrs import define, field

from window_consumer.engine.partition import Partition
from window_consumer.engine.turn import CopyTo
from window_consumer.model.headers import Reason
from window_consumer.model.outcome import Outcome
from window_consumer.model.protocols import Copy
from window_consumer.model.record import Message

AGAIN_S: Final = 10.0
"""How long a record stays where it is after it was rotated."""


@define
class Rotation:
    """Which records of one partition of the ladder were rotated lately. Owner: poll thread."""

    _rotated: dict[int, float] = field(factory=dict, init=False)
    """When, by original offset; the earliest first."""
    _rests_until: float = field(default=float("-inf"), init=False)

    def copies(
        self, partition: Partition, held: Iterable[Message], now: float
    ) -> Iterator[tuple[int, CopyTo]]:
        """Yield copies of the first of these records that may be rotated, with their offsets."""
        if now < self._rests_until:
            return
        self._drop_until(now - AGAIN_S)
        for message in held:
            original = partition.retry_level.hop_of(message).offset
            if original in self._rotated:
                self._rests_until = self._rotated[original] + AGAIN_S
                return
            self._rotated[original] = now
            yield message.offset(), _at_the_end(partition, message)

    def _drop_until(self, then: float) -> None:
        while self._rotated:
            original = next(iter(self._rotated))
            if self._rotated[original] > then:
                return
            del self._rotated[original]


def _at_the_end(partition: Partition, message: Message) -> CopyTo:
    """Return the unchanged copy of a record that waits, for the end of its partition."""
    name = partition.name
    copy = Copy(name.topic, name.partition, message.key(), message.value(), message.headers() or ())
    return CopyTo(copy, Reason.PARKED, Outcome.ROTATED)
