"""Watches the order that parking promises."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from window_consumer.engine.partition import Partition
from window_consumer.model import headers as names
from window_consumer.model.record import TopicPartition
from window_consumer.simulator.history import SimulationHistory
from window_consumer.simulator.log_history import KnownRecord, SimulatedCall, Tenure

_ROTATED_S: Final = 10.0
"""How long a record is not rotated again."""


class ParkWatch:
    """Checks that a record's first call comes after the end of all before it. Owner: one thread.

    Later calls, after a rewind, are not judged.
    """

    def __init__(self, history: SimulationHistory):
        self._history = history
        self._parks = history.plan.engine.retry.on_failure == "park"
        self._called: set[tuple[TopicPartition, int]] = set()
        self._ended: set[tuple[TopicPartition, int]] = set()
        self._parked: set[tuple[TopicPartition, int]] = set()
        self._dead: set[tuple[TopicPartition, int]] = set()
        self._rotated: dict[tuple[Partition, int], float] = {}
        """When, by assignment and original offset."""
        self._heads: dict[tuple[TopicPartition, int], tuple[TopicPartition, int]] = {}
        """The dead head that a record has to follow, by the follower."""

    def begins(self, call: SimulatedCall) -> None:
        """Judge the start of a call."""
        hop = call.record.hop
        record = hop.origin, hop.offset
        if not self._parks or call.lane is None or record in self._called:
            return
        self._called.add(record)
        if record in self._heads:
            self._history.violate(
                f"{hop.origin}@{hop.offset} is called although it follows {self._heads[record][1]}"
            )
        ledger = self._history.ledger(self._history.broker.log(*hop.origin))
        for offset, each in ledger.records.items():
            is_before = offset < hop.offset and each.message.key() == call.lane
            if is_before and (hop.origin, offset) not in self._ended:
                self._history.violate(
                    f"{hop.origin}@{hop.offset} of key {call.lane!r} is called before {offset} has"
                    " ended"
                )

    def parked(self, record: KnownRecord) -> None:
        """Record that a member of the group has parked a record."""
        self._parked.add(_origin(record))

    def rotated(self, tenure: Tenure, record: KnownRecord) -> None:
        """Judge a parked record that is copied to the end of its topic."""
        now, each = self._history.now(), (tenure.partition, record.hop.offset)
        if now - self._rotated.get(each, float("-inf")) < _ROTATED_S:
            self._history.violate(
                f"{tenure.name}@{record.message.offset()} is rotated again within {_ROTATED_S:g} s"
            )
        self._rotated[each] = now

    def ended(self, record: KnownRecord, *, is_dead: bool = False) -> None:
        """Record the end of a record: its handler has returned, or it is dead or dropped."""
        if not self._parks:
            return
        origin = _origin(record)
        self._ended.add(origin)
        if is_dead:
            self._dead.add(origin)
            self._expect_followers(record)
        else:
            self._heads = {each: head for each, head in self._heads.items() if head != origin}

    def _expect_followers(self, record: KnownRecord) -> None:
        home, offset = head = _origin(record)
        if not self._history.plan.follows or head in self._heads:
            return
        ledger = self._history.ledger(self._history.broker.log(*home))
        for later, each in ledger.records.items():
            is_of_key = each.message.key() == record.first.message.key()
            outstanding = (home, later) in self._parked - self._ended
            if is_of_key and later > offset and outstanding:
                self._heads.setdefault((home, later), head)

    def may_follow(self, record: KnownRecord, headers: Mapping[str, bytes | None]) -> bool:
        """Return whether the head that a copy names is dead, and comes before its record."""
        home, offset = _origin(record)
        named = (headers.get(names.FOLLOWS) or b"").decode()
        start = f"{home.topic}/{home.partition}/"
        head = int(named.removeprefix(start)) if named.startswith(start) else offset
        return head < offset and (home, head) in self._dead


def _origin(record: KnownRecord) -> tuple[TopicPartition, int]:
    return record.hop.origin, record.hop.offset
