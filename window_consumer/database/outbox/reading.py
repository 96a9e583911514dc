"""Reads due rows: the cost of a read depends on the rows it returns, not on rows before them."""

from __future__ import annotations

import time
from collections.abc import Collection, Mapping, Sequence
from typing import Any, Final

import sqlalchemy as sa

from window_consumer.database.dialects.dialect import SqlDialect
from window_consumer.database.outbox.position import ReadStart, ShardFronts
from window_consumer.database.outbox.table import BLOCKED, REFUSED, UNPUBLISHED, Outbox

SPAN: Final = 100_000
"""The most rows that one statement scans."""
SLOW_S: Final = 0.01
"""A read that takes longer may have scanned rows; scanning a whole span takes longer."""
LONGEST_S: Final = 0.1
"""How long a shard is scanned without a result: the lane's other shards wait, and the lock is
held."""
_ALL: Final = 2**62


class OutboxReading:
    """Finds due rows. Owner: the thread whose connection is used."""

    def __init__(
        self,
        outbox: Outbox,
        dialect: SqlDialect,
        *,
        slow_s: float = SLOW_S,
        span: int = SPAN,
        longest_s: float = LONGEST_S,
    ):
        self._outbox = outbox
        self._dialect = dialect
        self._table = table = outbox.table
        self._slow_s, self._span, self._longest_s = slow_s, span, longest_s
        self._now = now = sa.text(dialect.now)
        self.due = sa.or_(table.c.available_at.is_(None), table.c.available_at <= now)
        self._fronts = ShardFronts(table, span) if dialect.has_positions else None
        self.selection = self._select(self._spanned() if dialect.has_positions else table)
        """The due rows of a shard; parameters are ``shard``, ``batch`` and, in PostgreSQL,
        ``first`` and ``span``."""
        late = self._select(table).where(
            table.c.seq < sa.bindparam("before"), table.c.available_at <= now
        )
        self._late = late.order_by(None).order_by(table.c.available_at, table.c.seq)

    def _spanned(self) -> sa.FromClause:
        row = self._table.c
        return (
            sa.select(self._table)
            .where(row.shard == sa.bindparam("shard"), sa.text(UNPUBLISHED))
            .where(row.seq >= sa.bindparam("first"))
            .order_by(row.seq)
            .limit(sa.bindparam("span"))
            .subquery("walked")
        )

    def _select(self, source: sa.FromClause) -> sa.Select[Any]:
        row = source.c
        earlier = self._table.alias("earlier")
        # As text: a single row with headers that are not JSON would fail the whole read.
        headers = sa.cast(row.headers, sa.Text).label("headers")
        columns = (row.id, row.topic, row.key, row.payload, headers, row.partition)
        is_held_up = sa.exists().where(
            # SQLite uses the partial index only if the condition's text matches exactly.
            sa.text("earlier.status <> 'waiting' AND earlier.published_at IS NULL"),
            sa.text("earlier.status = 'blocked'"),
            earlier.c.shard == row.shard,
            earlier.c.topic == row.topic,
            earlier.c.key == row.key,
            earlier.c.seq < row.seq,
        )
        due = sa.or_(row.available_at.is_(None), row.available_at <= self._now)
        return (
            sa.select(*columns, row.timestamp, row.seq)
            .where(row.shard == sa.bindparam("shard"))
            .where(sa.text(UNPUBLISHED), due, ~is_held_up)
            .order_by(row.seq)
            .limit(sa.bindparam("batch"))
        )

    def clear_positions(self) -> None:
        """Read all shards from their start."""
        if self._fronts is not None:
            self._fronts.clear()

    def rows(
        self, connection: sa.Connection, shard: int, batch: int, held: Collection[str]
    ) -> Sequence[Sequence[Any]]:
        """Return the first due rows of a shard, with ``seq`` as the last column.

        They are in ``seq`` order, except that rows before the position that became due come first.
        """
        fronts = self._fronts
        if fronts is None:
            return self._found(connection, self.selection, held, shard=shard, batch=batch)
        until = time.monotonic() + self._longest_s
        while True:
            start = fronts.start(connection, shard)
            began = time.monotonic()
            found = self._read(connection, shard, batch, held, start)
            ended = time.monotonic()
            if not fronts.holds(connection, shard, held):
                continue
            if ended - began < self._slow_s:
                return found
            seqs = [each[-1] for each in found if each[-1] >= start.first]
            if found and not seqs:
                return found
            is_more = fronts.move(connection, shard, held, start, min(seqs, default=None))
            if found or not is_more or ended > until:
                return found
            if start.is_known and start.to is None:
                # A long transaction keeps the position from moving: scan to the end.
                return self._read(connection, shard, batch, held, start, _ALL)

    def _read(
        self,
        connection: sa.Connection,
        shard: int,
        batch: int,
        held: Collection[str],
        start: ReadStart,
        span: int | None = None,
    ) -> list[Any]:
        found: list[Any] = []
        first = start.first
        if first:
            found += self._found(
                connection, self._late, held, shard=shard, before=first, batch=batch
            )
        if len(found) < batch:
            bound = {"first": first, "batch": batch - len(found), "span": span or self._span}
            found += self._found(connection, self.selection, held, shard=shard, **bound)
        return found

    def _found(
        self,
        connection: sa.Connection,
        statement: sa.Select[Any],
        held: Collection[str],
        **bound: int,
    ) -> Sequence[Any]:
        if held:
            topic = statement.selected_columns.topic
            statement = statement.where(topic.not_in(sorted(held)))
        return connection.execute(statement, bound).all()

    def due_shards(self, connection: sa.Connection, held: Collection[str]) -> list[int]:
        """Return the shards with due rows, ignoring rows of the topics ``held``."""
        shards = self._shards(self._positions(connection, held))
        row = self._table.c
        rows = sa.select(sa.true()).where(row.shard == shards.c.shard, sa.text(UNPUBLISHED))
        if held:
            rows = rows.where(row.topic.not_in(sorted(held)))
        at_once = rows.where(row.available_at.is_(None), row.seq >= shards.c.first)
        at_once = at_once.order_by(row.seq)
        later = rows.where(row.available_at <= self._now).order_by(row.available_at)
        # With ORDER BY instead of EXISTS: otherwise PostgreSQL may read all rows.
        probes = [each.limit(1).correlate(shards).scalar_subquery() for each in (at_once, later)]
        due = sa.or_(*(probe.is_not(None) for probe in probes))
        return list(connection.scalars(sa.select(shards.c.shard).where(due)))

    def _positions(self, connection: sa.Connection, held: Collection[str]) -> Mapping[int, int]:
        found = {} if self._fronts is None else self._fronts.positions(connection, held)
        if found:
            self._dialect.read_by_index(connection)
        return found

    def _shards(self, positions: Mapping[int, int]) -> Any:
        """Return a table of the shards with unpublished rows, with one index lookup for each.

        With positions, it has all shards below ``shards``, and others with unpublished rows: a
        check for unpublished rows would scan what lies before the positions.
        """
        shard = self._table.c.shard
        lowest = sa.select(sa.func.min(shard).label("shard"), sa.literal(0).label("first"))
        lowest = lowest.where(sa.text(UNPUBLISHED))
        if positions:
            lowest = lowest.where(shard >= self._outbox.shards)
        found = lowest.cte("shards", recursive=True)
        following = (
            sa.select(sa.func.min(shard))
            .where(sa.text(UNPUBLISHED), shard > found.c.shard)
            .correlate(found)
            .scalar_subquery()
        )
        found = found.union_all(
            sa.select(following, sa.literal(0)).where(found.c.shard.is_not(None))
        )
        if not positions:
            return found
        columns = (sa.column("shard", sa.Integer), sa.column("first", sa.BigInteger))
        own = [(each, positions.get(each, 0)) for each in range(self._outbox.shards)]
        both: list[Any] = [sa.values(*columns, name="own").data(own), found]
        selected = [sa.select(each.c["shard"], each.c["first"]) for each in both]
        return sa.union_all(*selected).subquery("shards_from")

    def oldest_since(self, connection: sa.Connection) -> Any:
        """Return since when the oldest unpublished row has been due; None if there is none."""
        positions = self._positions(connection, ())
        shards = self._shards(positions)
        row = self._table.c
        of_shard = (row.shard == shards.c.shard, sa.text(UNPUBLISHED))
        at_once = sa.select(row.created_at).where(*of_shard, row.available_at.is_(None))
        later = sa.select(row.available_at).where(*of_shard, row.available_at <= self._now)
        probes = (
            at_once.where(row.seq >= shards.c.first).order_by(row.seq),
            later.order_by(row.available_at),
        )
        oldest = [
            sa.select(each.limit(1).correlate(shards).scalar_subquery().label("since")).select_from(
                shards
            )
            for each in probes
        ]
        if positions:  # rows before a position are younger than the blocked ones they wait for
            refused = (sa.text(REFUSED), row.status == BLOCKED)
            oldest.append(sa.select(sa.func.min(row.created_at).label("since")).where(*refused))
        since = sa.union_all(*oldest).subquery()
        return connection.scalar(sa.select(sa.func.min(since.c.since)))
