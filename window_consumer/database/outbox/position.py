"""The position from which a shard is read, past rows that cannot be sent.

There may be millions of blocked and delayed rows and, while an old snapshot is open, of dead ones.
A relay that has scanned them remembers the position; rows before it that become due are found by
their times. A row may become visible after rows with higher numbers, and a position beyond it would
break the order of its key. So the position moves only past numbers at which no more rows can
appear: writers lock the table, and those that held the lock when the position was found must have
ended.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Collection
from typing import Final

import sqlalchemy as sa
from attrs import define, field, frozen

from window_consumer.database.outbox.table import BLOCKED, REFUSED, UNPUBLISHED

_FROM_THE_START_S: Final = 300.0
"""After this long a shard is read from its start: rows may have been changed manually."""

_WRITERS: Final = sa.text(
    "SELECT virtualtransaction FROM pg_locks WHERE locktype = 'relation'"
    " AND database = (SELECT oid FROM pg_database WHERE datname = current_database())"
    " AND relation = CAST(:table AS regclass) AND mode = 'RowExclusiveLock'"
    " AND pid IS DISTINCT FROM pg_backend_pid()"
)


@define
class _Front:
    """The position in a shard."""

    since: float
    first: int = 0
    """No row before it can be sent, except those that become due."""
    next_first: int = 0
    """The position once ``writers`` have ended."""
    writers: frozenset[str] = frozenset()
    blocked: frozenset[uuid.UUID] = frozenset()
    """Rows that block their keys: once one no longer blocks, the shard is read from its start."""
    held: frozenset[str] = frozenset()
    """Topics that were left out: once one is no longer, the shard is read from its start."""

    def is_valid(self, held: Collection[str], blocked: frozenset[uuid.UUID]) -> bool:
        is_over = time.monotonic() - self.since > _FROM_THE_START_S
        return not is_over and self.held.issubset(held) and self.blocked <= blocked


@frozen
class ReadStart:
    """Where a read begins."""

    first: int = 0
    to: int | None = None
    """Where the position may move to; None if it must stay."""
    is_known: bool = False
    """Whether the shard has a position."""
    blocked: frozenset[uuid.UUID] = frozenset()


@define
class ShardFronts:
    """The positions of a relay, in PostgreSQL. Owner: the thread whose connection is used."""

    _table: sa.Table
    _span: int
    """The most rows that one statement scans."""
    _fronts: dict[int, _Front] = field(factory=dict, init=False)

    def clear(self) -> None:
        """Read all shards from their start."""
        self._fronts.clear()

    def positions(self, connection: sa.Connection, held: Collection[str]) -> dict[int, int]:
        """Return the shards that are not read from their start, with their positions."""
        if not self._fronts:
            return {}
        blocked = self._blocked(connection)
        self._fronts = {s: each for s, each in self._fronts.items() if each.is_valid(held, blocked)}
        return {shard: front.first for shard, front in self._fronts.items() if front.first}

    def start(self, connection: sa.Connection, shard: int) -> ReadStart:
        """Return where to start reading."""
        front = self._fronts.get(shard)
        if front is None:
            return ReadStart()
        may_move = front.next_first > front.first and not (
            front.writers & self._writers(connection)
        )
        to = front.next_first if may_move else None
        return ReadStart(front.first, to, True, self._blocked(connection, shard))

    def holds(self, connection: sa.Connection, shard: int, held: Collection[str]) -> bool:
        """Return whether the position is still valid; if not, the shard is read from its start."""
        front = self._fronts.get(shard)
        if front is None or not front.first:
            return True
        if front.is_valid(held, self._blocked(connection, shard)):
            return True
        del self._fronts[shard]
        return False

    def move(
        self,
        connection: sa.Connection,
        shard: int,
        held: Collection[str],
        start: ReadStart,
        first_found: int | None,
    ) -> bool:
        """Advance after a read that scanned rows; return whether there are more to scan."""
        front = self._fronts.setdefault(shard, _Front(time.monotonic()))
        if start.to is not None:
            front.first = start.to if first_found is None else min(start.to, first_found)
            front.blocked |= start.blocked
            front.held |= set(held)
        row = self._table.c
        # Half a span: the next read also scans rows that appear in the meantime.
        walked = (
            sa.select(row.seq)
            .where(row.shard == shard, sa.text(UNPUBLISHED), row.seq >= front.first)
            .order_by(row.seq)
            .limit(self._span // 2)
            .subquery()
        )
        found = sa.select(sa.func.max(walked.c.seq), sa.func.count()).select_from(walked)
        last, count = connection.execute(found).one()
        front.next_first = front.first if last is None else last + 1
        front.writers = self._writers(connection)
        return bool(count == self._span // 2)

    def _blocked(self, connection: sa.Connection, shard: int | None = None) -> frozenset[uuid.UUID]:
        row = self._table.c
        statement = sa.select(row.id).where(sa.text(REFUSED), row.status == BLOCKED)
        if shard is not None:
            statement = statement.where(row.shard == shard)
        return frozenset(connection.scalars(statement))

    def _writers(self, connection: sa.Connection) -> frozenset[str]:
        name = connection.dialect.identifier_preparer.format_table(self._table)
        return frozenset(connection.scalars(_WRITERS, {"table": name}))
