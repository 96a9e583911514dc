"""The division of work among relays: a lane is a fixed part of the shards, sent by one relay.

A relay keeps its lanes, because each takeover costs time: the new relay must initialize the lane's
transactional id. A relay takes lanes that it never had. It takes a lane back from another relay
only if that relay has left it, or cannot keep up while this one is idle.
"""

from __future__ import annotations

import hashlib
import random
import uuid
from collections import defaultdict
from collections.abc import Iterable
from typing import Final

from attrs import define, field, frozen

from window_consumer.database.outbox.table import Outbox

LANES: Final = 4
"""The number of lanes. More relays than this are idle; each has up to this many clients."""

PREFIX: Final = "wc-outbox-"
"""The prefix of all transactional ids."""


def id_prefix(table: str) -> str:
    """Return the prefix of the transactional ids of a table's relays."""
    return f"{PREFIX}{table}-"


@frozen(kw_only=True)
class LaneTimes:
    """When a lost lane is taken back, in seconds."""

    stands_s: float = 2.0
    """If its first row has been the same for this long and its lock has been free."""
    is_behind_s: float = 10.0
    """If it has had due rows at each check for this long while this relay's own lanes had none."""


@define
class _LostLane:
    """A lane that another relay has taken over."""

    due_since: float
    """Rows have been due at each check since then."""
    first: uuid.UUID | None = None
    first_since: float = 0.0


@define
class LaneClaims:
    """Which lanes this relay sends in. Owner: the relay's thread."""

    _shards: int
    _times: LaneTimes
    _lost: dict[int, _LostLane] = field(factory=dict, init=False)
    _busy_at: float = field(default=float("-inf"), init=False)
    """When one of its own lanes last had rows."""
    _prefix: str = field(default="", init=False)

    def name(self, outbox: Outbox, database: str) -> None:
        """Set the database, part of all ids: relays of two may write to the same cluster."""
        digest = hashlib.sha256(database.encode()).hexdigest()[:12]
        self._prefix = f"{id_prefix(outbox.table.fullname)}{digest}"

    def transactional_id(self, lane: int) -> str:
        """Return a lane's transactional id, the same in all relays."""
        return f"{self._prefix}-{lane}"

    def due(self, shards: Iterable[int], now: float) -> list[tuple[int, list[int]]]:
        """Return the lanes with due rows, and their shards, in random order."""
        found: defaultdict[int, list[int]] = defaultdict(list)
        for shard in shards:
            found[shard % min(LANES, self._shards)].append(shard)
        for lane, lost in self._lost.items():
            if lane not in found:
                lost.due_since, lost.first = now, None
        if found.keys() - self._lost.keys():
            self._busy_at = now
        lanes = list(found.items())
        random.shuffle(lanes)  # so that several relays start with different ones
        return lanes

    def is_lost(self, lane: int) -> bool:
        """Return whether another relay has taken it over."""
        return lane in self._lost

    def lose(self, lane: int, now: float) -> None:
        """Leave a lane to the relay that has taken it over."""
        self._lost[lane] = _LostLane(now)

    def keep(self, lane: int) -> None:
        """Record that Kafka accepts this relay's rows."""
        self._lost.pop(lane, None)

    def may_take(self, lane: int, first: uuid.UUID | None, now: float) -> bool:
        """Return whether to take back a lost lane; ``first`` is its first row."""
        lost = self._lost[lane]
        if first is None:
            lost.due_since, lost.first = now, None
            return False
        if first != lost.first:
            lost.first, lost.first_since = first, now
        stands = now - lost.first_since >= self._times.stands_s
        is_idle = now - self._busy_at >= self._times.is_behind_s
        is_behind = is_idle and now - lost.due_since >= self._times.is_behind_s
        if is_behind and not stands:
            self._busy_at = now  # one at a time
        return stands or is_behind
