"""Rotation: records that wait at the start of a ladder's full window move to their topic's end.

A window full of records that may not start hides the records behind it, among them perhaps the head
of another lane. So the first ones make room: they are copied unchanged to the end and come again.
Each is copied at most once in ``AGAIN_S``, so a park topic without a startable record is copied at
most that often. A process that is killed during a rotation may leave two copies of a record; each
of them makes room.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator
from typing import Final

from attrs import define, field

from window_consumer.engine.partition import Partition
from window_consumer.engine.turn import CopyTo
from window_consumer.model.headers import Reason
from window_consumer.model.outcome import Outcome
from window_consumer.model.protocols import Copy
from window_consumer.model.record import Message
from window_consumer.parking.index import LadderRecord
from window_consumer.parking.scans import of_ladder

AGAIN_S: Final = 10.0
"""How long a rotated record stays where it is."""


@define
class Rotation:
    """The recently rotated records of one partition of the ladder. Owner: poll thread."""

    _rotated: deque[tuple[float, LadderRecord]] = field(factory=deque, init=False)
    """In order, earliest first."""
    _times: Counter[LadderRecord] = field(factory=Counter, init=False)
    """How often each record is in ``_rotated``."""
    _rests_until: float = field(default=float("-inf"), init=False)

    def copies(
        self,
        partition: Partition,
        held: Iterable[Message],
        copies_of: Callable[[LadderRecord], int],
        now: float,
    ) -> Iterator[tuple[int, CopyTo]]:
        """Yield copies, with offsets, of the first of these records that may be rotated.

        ``copies_of`` returns how many copies of a record are outstanding.
        """
        if now < self._rests_until:
            return
        self._drop_until(now - AGAIN_S)
        for message in held:
            record = of_ladder(partition, message)
            if record is None:
                return
            if self._times[record] >= max(1, copies_of(record)):
                first = next(then for then, each in self._rotated if each == record)
                self._rests_until = first + AGAIN_S
                return
            self._rotated.append((now, record))
            self._times[record] += 1
            yield message.offset(), _at_the_end(partition, message)

    def _drop_until(self, then: float) -> None:
        while self._rotated and self._rotated[0][0] <= then:
            _, record = self._rotated.popleft()
            self._times[record] -= 1
            if not self._times[record]:
                del self._times[record]


def _at_the_end(partition: Partition, message: Message) -> CopyTo:
    """Return the unchanged copy of a waiting record, for the end of its partition."""
    name = partition.name
    copy = Copy(name.topic, name.partition, message.key(), message.value(), message.headers() or ())
    return CopyTo(copy, Reason.PARKED, Outcome.ROTATED)
