"""The contents of the tables of ``once``: ids and their ages, fences and their holders."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

import sqlalchemy as sa
from attrs import field, frozen

from window_consumer.config import format_duration
from window_consumer.database.connection_errors import place_of
from window_consumer.database.dialects.dialect import EffectOwner
from window_consumer.database.once.fence_locks import LockHolder, locks_of
from window_consumer.database.once.startup import OnceWorker
from window_consumer.database.once.tables import OnceTableError, OnceTables


@frozen
class OnceDatabase:
    """The tables of ``once`` in one database, and the workers that use them."""

    name: str
    """The database's URL without driver and password."""
    workers: tuple[OnceWorker, ...]

    @property
    def tables(self) -> OnceTables:
        """The tables."""
        return self.workers[0].once.tables

    @property
    def is_fenced(self) -> bool:
        """Whether the fence table is needed."""
        return any(each.once.values_for(each.config).fenced for each in self.workers)

    def ddl(self) -> str:
        """Return the SQL that creates the tables and their indexes; does not connect."""
        dialect = self.workers[0].once.engine().dialect
        return self.tables.ddl(dialect, fenced=self.is_fenced)


def once_databases(workers: Iterable[OnceWorker]) -> list[OnceDatabase]:
    """Return the distinct databases of workers with ``once``, whatever their drivers."""
    found: dict[tuple[str, str], list[OnceWorker]] = {}
    for each in workers:
        url = each.once.engine().url
        name = place_of(url.set(drivername=url.get_backend_name(), password=""))
        found.setdefault((name, each.once.table.fullname), []).append(each)
    return [OnceDatabase(name, tuple(users)) for (name, _), users in found.items()]


@frozen
class StoredId:
    """An id in the table."""

    id: str
    origin: str
    """Its first topic, with the hash of the topic's id."""
    done_at: datetime


@frozen
class OnceRows:
    """The ids of one worker."""

    group: str
    worker: str
    keep_s: float | None
    """None for a worker that this application lacks: it does not delete that worker's ids."""
    rows: int
    oldest: StoredId | None
    newest: StoredId | None


@frozen
class FenceRow:
    """The fence of a partition."""

    group: str
    topic: str
    partition: int
    fence: int
    owners: tuple[LockHolder, ...]
    """Transactions that hold it now; SQLite does not report them."""


@frozen
class OnceStatus:
    """The state of ``once`` in a database."""

    database: str
    table: str
    exists: bool
    problem: str | None = None
    """Why the tables cannot be used, with the DDL."""
    workers: Sequence[OnceRows] = ()
    fences: Sequence[FenceRow] = field(default=())

    def as_json(self) -> Mapping[str, Any]:
        """Return the state as values for ``json.dumps``."""
        return {
            "database": self.database,
            "table": self.table,
            "exists": self.exists,
            "rows": sum(each.rows for each in self.workers),
            "oldest": _json_of(min(self._ids("oldest"), key=_time_of, default=None)),
            "newest": _json_of(max(self._ids("newest"), key=_time_of, default=None)),
            "workers": [
                {
                    "worker": each.worker,
                    "group": each.group,
                    "keep_s": each.keep_s,
                    "rows": each.rows,
                    "oldest": _json_of(each.oldest),
                    "newest": _json_of(each.newest),
                }
                for each in self.workers
            ],
            "fences": [
                {
                    "group": each.group,
                    "topic": each.topic,
                    "partition": each.partition,
                    "fence": each.fence,
                    "owners": [
                        {**owner._asdict(), "seconds": round(float(owner.seconds), 3)}
                        for owner in each.owners
                    ],
                }
                for each in self.fences
            ],
        }

    def in_words(self) -> Iterator[str]:
        """Yield lines for people."""
        rows = sum(each.rows for each in self.workers)
        there = f"{rows} rows" if self.exists else "is missing"
        yield f"{self.database}: {self.table} {'has ' if self.exists else ''}{there}"
        for each in self.workers:
            keep = "not a worker of this application, so they are not deleted here"
            if each.keep_s is not None:
                keep = f"kept for {format_duration(each.keep_s)}"
            yield f"  {each.worker} of group {each.group}: {each.rows} rows, {keep}"
            for name, stored in (("oldest", each.oldest), ("newest", each.newest)):
                if stored is not None:
                    yield f"    {name}: {stored.id} of {stored.origin}, {_text_of(stored.done_at)}"
        for fence in self.fences:
            owners = "; ".join(map(str, fence.owners)) or "no transaction"
            where = f"{fence.topic}[{fence.partition}] of group {fence.group}"
            yield f"  fence {fence.fence} of {where}, held by {owners}"

    def _ids(self, which: str) -> list[StoredId]:
        return [found for each in self.workers if (found := getattr(each, which)) is not None]


def status_of(database: OnceDatabase, connection: sa.Connection) -> OnceStatus:
    """Query a database; change nothing. Reads the table of ids once, plus once per worker."""
    tables = database.tables
    ids, fences = tables.ids, tables.fences
    inspector = sa.inspect(connection)
    exists = inspector.has_table(ids.name, schema=ids.schema)
    try:
        tables.check(connection, fenced=database.is_fenced)
    except OnceTableError as error:
        return OnceStatus(database.name, ids.fullname, exists, f"{database.name}: {error}")
    has_fences = inspector.has_table(fences.name, schema=fences.schema)
    return OnceStatus(
        database.name,
        ids.fullname,
        exists,
        workers=_rows(database, connection),
        fences=_fences(tables, connection) if has_fences else (),
    )


def _rows(database: OnceDatabase, connection: sa.Connection) -> list[OnceRows]:
    table = database.tables.ids
    owner = (table.c.group_name, table.c.worker)
    counted = sa.select(*owner, sa.func.count()).group_by(*owner)
    counts = {
        EffectOwner(group, worker): int(rows) for group, worker, rows in connection.execute(counted)
    }
    keeps = {
        EffectOwner(each.config.group, each.config.name): each.once.keep_s(each.config)
        for each in database.workers
    }
    return [
        OnceRows(
            *each,
            keeps.get(each),
            counts.get(each, 0),
            _first(connection, table, each, table.c.done_at),
            _first(connection, table, each, table.c.done_at.desc()),
        )
        for each in sorted({*counts, *keeps})
    ]


def _first(
    connection: sa.Connection, table: sa.Table, owner: EffectOwner, order: sa.ColumnElement[Any]
) -> StoredId | None:
    statement = (
        sa.select(table.c.record_id, table.c.origin, table.c.done_at)
        .where(table.c.group_name == owner.group_name, table.c.worker == owner.worker)
        .order_by(order)
        .limit(1)
    )
    found = connection.execute(statement).one_or_none()
    return None if found is None else StoredId(*found)


def _fences(tables: OnceTables, connection: sa.Connection) -> list[FenceRow]:
    locks = locks_of(connection)
    return [
        FenceRow(*place, fence, tuple(locks.holders(connection, tables.fences, place)))
        for place, fence in tables.raised(connection)
    ]


def _time_of(stored: StoredId) -> datetime:
    return stored.done_at


def _text_of(time: datetime) -> str:
    """Return a time with its zone; SQLite stores UTC without one."""
    return (time if time.tzinfo else time.replace(tzinfo=UTC)).isoformat()


def _json_of(stored: StoredId | None) -> Mapping[str, str] | None:
    if stored is None:
        return None
    return {"id": stored.id, "origin": stored.origin, "done_at": _text_of(stored.done_at)}
