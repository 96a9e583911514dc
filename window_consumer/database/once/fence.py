"""Fences: a member that was removed from the group cannot write."""

from __future__ import annotations

import time
from typing import Final, NamedTuple

from attrs import define
from sqlalchemy.exc import DBAPIError

from window_consumer.database.dialects.dialect import is_lock_timeout
from window_consumer.database.once.fence_locks import Backend, FenceLimits, FencePlace
from window_consumer.database.once.outage import begin
from window_consumer.database.once.session import EffectSession
from window_consumer.database.once.tables import OnceTables
from window_consumer.model.log_events import LogEvent
from window_consumer.model.membership import MembershipProof
from window_consumer.model.record import Record
from window_consumer.runtime.log import own_logger

__handler_layer__ = True  # its frames are no part of a failure, see runtime/stack.py

BEYOND_STALL_S: Final = 30.0
"""How much longer than ``stall.after`` a transaction may be idle. A live member ends the
transactions of its abandoned calls itself, so this is for a frozen member."""

QUIET_S: Final = 10.0
"""The interval of log lines about a waiting fence."""

_log = own_logger()


class FencedOut(Exception):  # noqa: N818 - the record is returned, nothing failed
    """Another member has raised the fence of the partition."""


class FenceOwner(NamedTuple):
    """The owner of fences."""

    worker: str
    group_name: str


class RaisedFences:
    """The fences that one worker has raised, in all databases of its routes."""

    def __init__(self) -> None:
        self.held: dict[_Fence, _Held] = {}
        self.raising: dict[tuple[_Fence, MembershipProof], object] = {}
        self.waits: dict[_Fence, _Wait] = {}


class Fences:
    """The fences of one route. Any slot may use them.

    Routes that write to the same tables share fences, whatever their engines are.
    """

    def __init__(
        self, tables: OnceTables, owner: FenceOwner, limits: FenceLimits, raised: RaisedFences
    ):
        self._tables = tables
        self._owner = owner
        self._limits = limits
        self._raised = raised
        self._tables_id: int | None = None

    def enter(self, session: EffectSession, record: Record) -> int:
        """Return the fence of the record's assignment; its first call raises the fence."""
        if self._tables_id is None:
            begin(session)
            self._tables_id = self._tables.id_in(session)
            session.commit_effects()
        name, membership = self._fence_of(record), _membership(record)
        raised = self._raised
        held = raised.held.get(name)
        if held is not None and held.membership is membership:
            return held.fence
        if membership.is_over:
            raise FencedOut(f"{record.topic}[{record.partition}] was revoked in the meantime")
        mine = object()
        if raised.raising.setdefault((name, membership), mine) is not mine:
            raise FencedOut("another call is raising the fence")
        try:
            begin(session)
            fence = self._tables.raise_fence(session, name.place, self._limits.lock_timeout_s)
            session.commit_effects()
            raised.held[name] = _Held(membership, fence)
            raised.waits.pop(name, None)
        except DBAPIError as error:
            if not is_lock_timeout(error):
                raise
            session.end()
            self._waits(session, name)
            raise FencedOut("transactions with the previous fence have not ended yet") from error
        finally:
            del raised.raising[name, membership]
        return fence

    def _waits(self, session: EffectSession, name: _Fence) -> None:
        """Log every 10 s which transactions hold up the raising of a fence."""
        now = time.monotonic()
        wait = self._raised.waits.setdefault(name, _Wait(now - self._limits.lock_timeout_s))
        if now - wait.logged_at < QUIET_S:
            return
        wait.logged_at = now
        begin(session)
        holders = self._tables.fence_holders(session, name.place)
        session.end()
        topic, partition = name.place.topic, name.place.partition
        _log.warning(
            "%s: once: %s[%d] has waited %.0f s for transactions of its previous owner: %s",
            self._owner.worker,
            topic,
            partition,
            now - wait.since,
            "; ".join(map(str, holders)) or "holders unknown",
            extra={
                "event": LogEvent.ONCE_FENCE_WAITS,
                "worker": self._owner.worker,
                "topic": topic,
                "partition": partition,
                "waited_s": round(now - wait.since, 3),
                "backends": [each.pid for each in holders],
                "applications": [each.application for each in holders],
            },
        )

    def check(self, session: EffectSession, record: Record, fence: int) -> Backend | None:
        """Raise FencedOut unless the fence is ours; then it stays ours until the transaction ends.

        Returns the backend by which another connection can end the transaction. A worker that lost
        a fence raises it again once the coordinator has accepted a commit made since: the other
        member then raised it too late.
        """
        name = self._fence_of(record)
        try:
            seen = self._tables.share_fence(session, name.place, self._limits)
        except DBAPIError as error:
            if not is_lock_timeout(error):
                raise
            raise FencedOut("another member is raising the fence") from error
        if seen is not None and seen.fence == fence:
            return seen.backend
        held = self._raised.held.get(name)
        if held is not None and held.fence == fence:
            if held.question is None:
                held.question = held.membership.ask()
            elif held.membership.has_proven(held.question):
                self._raised.held.pop(name, None)
        raise FencedOut(
            f"{record.topic}[{record.partition}] has another owner now: its fence is above {fence}"
        )

    def _fence_of(self, record: Record) -> _Fence:
        place = FencePlace(self._owner.group_name, record.topic, record.partition)
        return _Fence(self._tables_id, place)


@define
class _Held:
    membership: MembershipProof
    fence: int
    """The value raised for this assignment."""
    question: int | None = None
    """The pending membership query, made after another member was found to have the fence."""


@define
class _Wait:
    since: float
    logged_at: float = float("-inf")


class _Fence(NamedTuple):
    tables_id: int | None
    place: FencePlace


def _membership(record: Record) -> MembershipProof:
    return record._call.assignment.membership  # noqa: SLF001 - the layers belong to the slots' loop
