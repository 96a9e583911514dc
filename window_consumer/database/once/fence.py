"""Fences: a member that the group has thrown out cannot write."""

from __future__ import annotations

import time
from typing import Final

from window_consumer.database.once.session import OnceSession
from window_consumer.database.once.tables import FencePlace, OnceTables
from window_consumer.model.record import Record

__handler_layer__ = True  # its frames are no part of a failure, see error_report.py

REGAIN_S: Final = 60.0
"""A member that was thrown out knows by then, as its session has ended: who is still called is the
owner, and another one has raised the fence late."""


class FencedOut(Exception):  # noqa: N818 - the record is given back, nothing failed
    """Another member has raised the fence of the partition."""


class Fences:
    """The fences of one worker in this process. Any slot may call."""

    def __init__(self, tables: OnceTables, group: str, lock_timeout_s: float):
        self._tables = tables
        self._group = group
        self._lock_timeout_s = lock_timeout_s
        self._held: dict[FencePlace, tuple[int, int]] = {}
        """The epoch, and the fence that was raised for it."""
        self._raising: dict[tuple[FencePlace, int], object] = {}
        self._refused_at: dict[FencePlace, float] = {}

    def enter(self, session: OnceSession, record: Record) -> int:
        """Return the fence of the record's assignment; the first call of one raises it."""
        place, epoch = self._place(record), _epoch(record)
        held = self._held.get(place, (-1, 0))
        if held[0] > epoch:
            raise FencedOut(f"{place.topic}[{place.partition}] was given up meanwhile")
        if held[0] == epoch:
            return held[1]
        mine = object()
        if self._raising.setdefault((place, epoch), mine) is not mine:
            raise FencedOut("another call raises the fence just now")
        try:
            session.begin_effects()
            fence = self._tables.raise_fence(session, place, self._lock_timeout_s)
            session.commit_effects()
            self._held[place] = epoch, fence
        finally:
            del self._raising[place, epoch]
        return fence

    def check(self, session: OnceSession, record: Record, fence: int) -> None:
        """Raise FencedOut unless the fence is ours, which it is until the transaction ends then."""
        place = self._place(record)
        if self._tables.fence_of(session, place) == fence:
            self._refused_at.pop(place, None)
            return
        now = time.monotonic()
        if now - self._refused_at.setdefault(place, now) > REGAIN_S:
            self._held.pop(place, None)
            self._refused_at.pop(place, None)
        raise FencedOut(
            f"{place.topic}[{place.partition}] has another owner by now: its fence is above {fence}"
        )

    def _place(self, record: Record) -> FencePlace:
        return FencePlace(self._group, record.topic, record.partition)


def _epoch(record: Record) -> int:
    return record._call.assignment.epoch  # noqa: SLF001 - the layers belong to the slots' loop
