"""Dead heads and their followers: the copies of their key in the ladder when they died.

If a crash or a rebalance comes between the dead letters of the head and of its last follower, only
the dead letters show which copies follow.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from attrs import field, frozen

from window_consumer.engine.turn import Leave
from window_consumer.model import headers as names
from window_consumer.model.errors import NotCalled
from window_consumer.model.fault import Failure
from window_consumer.model.record import TopicPartition
from window_consumer.model.record_identity import RecordOrigin, origin_in
from window_consumer.parking.index import Lane
from window_consumer.parking.scans import LadderCopy

_NO_HEADS: Final = frozenset({names.Reason.EXPIRED.encode(), names.Reason.FOLLOWS.encode()})


class FollowsDeadHead(NotCalled):
    """The record of its key that it waited behind became a dead letter, so it follows."""

    reason = names.Reason.FOLLOWS

    def __init__(self, home: TopicPartition, offset: int):
        head = RecordOrigin(*home, offset)
        super().__init__(f"follows {head}, the dead letter in front of it")
        self.headers = ((names.FOLLOWS, str(head).encode()),)


def follow(home: TopicPartition, dead_head: int | None) -> Leave | None:
    """Return how a follower of a dead head in its source partition leaves."""
    return None if dead_head is None else Leave(Failure.uncalled(FollowsDeadHead(home, dead_head)))


@frozen
class DeadHeads:
    """The dead letters of source partitions: their offsets, and when each was written."""

    _of: dict[tuple[TopicPartition, Lane, bytes | None], list[tuple[int, float]]] = field(
        factory=dict, init=False
    )

    def add(self, lane: Lane | None, headers: Mapping[str, bytes | None], written: float) -> None:
        """Add a dead letter. It has no followers if it has no key or has expired.

        Nor has a follower: records that were parked after its head had died are called.
        """
        origin = origin_in(headers)
        is_head = headers.get(names.REASON) not in _NO_HEADS
        if lane is not None and origin is not None and is_head:
            home = TopicPartition(origin.topic, origin.partition)
            of = home, lane, headers.get(names.ORIGINAL_TOPIC_ID)
            self._of.setdefault(of, []).append((origin.offset, written))

    def marked(self, home: TopicPartition, copies: Sequence[LadderCopy]) -> Sequence[LadderCopy]:
        """Return copies of a source partition's records, marked with the heads that they follow."""
        return [self._marked(home, each) for each in copies] if self._of else copies

    def _marked(self, home: TopicPartition, copy: LadderCopy) -> LadderCopy:
        dead = self._of.get((home, copy.lane, copy.topic_id), ())
        heads = [at for at, written in dead if at < copy.offset and written >= copy.written]
        return copy._replace(follows=min(heads)) if heads else copy
