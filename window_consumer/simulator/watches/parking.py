"""Watches the order that parking promises."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import takewhile
from typing import Final

from window_consumer.engine.partition import Partition
from window_consumer.model import headers as names
from window_consumer.simulator.history import SimulationHistory
from window_consumer.simulator.log_history import KnownRecord, SimulatedCall, Tenure

_ROTATED_S: Final = 10.0
"""How long a rotated copy stays before it is rotated again."""


Run = bytes
"""The name of a replay, as its copies carry it."""


class ParkWatch:
    """Checks that a record's first call follows the end of all before it. Owner: one thread.

    Later calls, after a rewind, are not judged. A replay's copies come after newer records, but
    keep the order among themselves: each run is judged on its own.
    """

    def __init__(self, history: SimulationHistory):
        self._history = history
        self._parks = history.plan.parks
        self._called: set[KnownRecord] = set()
        """Records of the source, as in all fields below."""
        self._ended: set[KnownRecord] = set()
        self._parked: set[KnownRecord] = set()
        self._dead: set[KnownRecord] = set()
        self._rotated: dict[tuple[Partition, KnownRecord], list[float]] = {}
        """When each record was rotated, by assignment and record."""
        self._heads: dict[KnownRecord, KnownRecord] = {}
        """The dead head that a record must follow, by the follower."""
        self._replayed: dict[Run, dict[KnownRecord, None]] = {}
        """Records with a copy in the entry topic, by run, in the order of their first copies."""
        self._called_in: set[tuple[Run, KnownRecord]] = set()
        self._ended_in: set[tuple[Run, KnownRecord]] = set()

    def begins(self, call: SimulatedCall) -> None:
        """Judge the start of a call."""
        if not self._parks or call.lane is None or call.at_turn:
            return
        record, run = call.record.first, _run_of(call.record)
        if run is not None:
            self._begins_replayed(run, record)
        elif record not in self._called:
            self._called.add(record)
            self._begins(call, record)

    def _begins(self, call: SimulatedCall, record: KnownRecord) -> None:
        place = f"{record.hop.origin}@{record.hop.offset}"
        if record in self._heads:
            head = self._heads[record].hop.offset
            self._history.violate(f"{place} is called although it follows {head}")
        for offset, each in record.ledger.records.items():
            is_before = offset < record.hop.offset and each.message.key() == call.lane
            is_open = is_before and each not in self._ended and not each.excused
            if is_open and not self._has_crashed(each):
                self._history.violate(
                    f"{place} of key {call.lane!r} is called before {offset} has ended"
                )

    def replayed(self, copy: KnownRecord) -> None:
        """Record that a replay has written a copy to the entry topic."""
        run = _run_of(copy)
        if run is not None:
            self._replayed.setdefault(run, {}).setdefault(copy.first)

    def _begins_replayed(self, run: Run, record: KnownRecord) -> None:
        """Judge the first call of a replayed record: copies written before its own must have ended.

        The copies of each key are written in order.
        """
        if (run, record) in self._called_in:
            return
        self._called_in.add((run, record))
        for each in takewhile(lambda each: each is not record, self._replayed.get(run, ())):
            is_before = each.hop.origin == record.hop.origin and each.hop.offset < record.hop.offset
            is_of_key = each.message.key() == record.message.key()
            is_open = is_before and is_of_key and (run, each) not in self._ended_in
            if is_open and not self._has_crashed(each):
                self._history.violate(
                    f"{record.hop.origin}@{record.hop.offset} is called in {run.decode()} before"
                    f" {each.hop.offset} has ended"
                )

    def _has_crashed(self, record: KnownRecord) -> bool:
        """Return whether a record is dropped without a call, itself or in a copy."""
        history = self._history
        return history.plan.engine.retry.when_spent == "drop" and any(
            each.first is record and history.has_crashed(each)
            for ledger in history.ledgers.values()
            for each in ledger.records.values()
        )

    def parked(self, record: KnownRecord) -> None:
        """Record that a member of the group has parked a record."""
        self._parked.add(record.first)

    def rotated(self, tenure: Tenure, record: KnownRecord) -> None:
        """Judge the copy of a parked record to the end of its topic."""
        now, each = self._history.now(), (tenure.partition, record.first)
        lately = [then for then in self._rotated.get(each, ()) if now - then < _ROTATED_S]
        if len(lately) >= self._copies(record.first):
            self._history.violate(
                f"{tenure.name}@{record.message.offset()} is rotated again within {_ROTATED_S:g} s"
            )
        self._rotated[each] = [*lately, now]

    def _copies(self, record: KnownRecord) -> int:
        """Return how many uncommitted copies a record has: a kill may leave two."""
        history = self._history
        return sum(
            each.first is record and offset not in ledger.durable
            for ledger in history.ledgers.values()
            if ledger.log.name.topic in history.retry_levels
            for offset, each in ledger.records.items()
        )

    def ended(self, record: KnownRecord, *, is_dead: bool = False) -> None:
        """Record the end of a record: its handler has returned, or it is dead or dropped."""
        if not self._parks:
            return
        first, run = record.first, _run_of(record)
        self._ended.add(first)
        if run is not None:
            self._ended_in.add((run, first))
        if is_dead:
            self._dead.add(first)
            self._expect_followers(first)
        else:
            self._heads = {each: head for each, head in self._heads.items() if head is not first}

    def _expect_followers(self, head: KnownRecord) -> None:
        if not self._history.plan.follows or head in self._heads:
            return
        for offset, each in head.ledger.records.items():
            is_of_key = each.message.key() == head.message.key()
            if is_of_key and offset > head.hop.offset and each in self._parked - self._ended:
                self._heads.setdefault(each, head)

    def may_follow(self, record: KnownRecord, headers: Mapping[str, bytes | None]) -> bool:
        """Return whether the head that a copy names is dead and comes before its record."""
        first = record.first
        home, offset = first.hop.origin, first.hop.offset
        named = (headers.get(names.FOLLOWS) or b"").decode()
        start = f"{home.topic}/{home.partition}/"
        head = int(named.removeprefix(start)) if named.startswith(start) else offset
        return head < offset and first.ledger.records.get(head) in self._dead


def _run_of(record: KnownRecord) -> Run | None:
    """Return the replay that copied a record into the ladder."""
    if record.first is record:
        return None
    return dict(record.message.headers() or ()).get(names.REPLAY)
