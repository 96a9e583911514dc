"""The tables of ``once`` and their statements: ids of finished records, and fences."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Sequence
from typing import Final

import sqlalchemy as sa
from sqlalchemy.dialects import postgresql
from sqlalchemy.schema import CreateIndex, CreateTable, SchemaItem

from window_consumer.database.dialects import dialect_of
from window_consumer.database.dialects.dialect import EffectKey, EffectOwner
from window_consumer.database.once.fence_locks import (
    FenceLimits,
    FencePlace,
    FenceSeen,
    LockHolder,
    is_at,
    locks_of,
)
from window_consumer.database.once.once_ids import IdsUnknownError
from window_consumer.database.once.session import EffectSession
from window_consumer.model.errors import UsageError

_TABLES_ITSELF: Final = FencePlace("", "", -1)
"""The group of the row with the table's identity: no real group has an empty name."""

_TEXT: Final = sa.Text().with_variant(postgresql.TEXT(collation="C"), "postgresql")
"""Compared byte by byte: a language's collation makes the index slower."""

_OURS: Final = "window_consumer.once"
"""The key in ``info`` of tables that ``Once`` created."""


class OnceTables:
    """The two tables, in the application's MetaData or in their own.

    They use the MetaData's schema, unless ``name`` has one, and its naming convention. Raises
    UsageError if it has another table of that name.
    """

    def __init__(self, name: str, metadata: sa.MetaData | None = None):
        self.metadata = sa.MetaData() if metadata is None else metadata
        self.ids = self._own(
            name,
            lambda: [
                *(
                    sa.Column(column, _TEXT, primary_key=True, nullable=False)
                    for column in ("group_name", "worker", "origin", "record_id")
                ),
                sa.Column(
                    "done_at",
                    sa.DateTime(timezone=True),
                    nullable=False,
                    server_default=sa.func.current_timestamp(),
                ),
                # Rows are appended in the order of their times: a block range index suffices.
                sa.Index(None, "done_at", postgresql_using="brin"),
            ],
        )
        self.fences = self._own(
            f"{name}_fence",
            lambda: [
                sa.Column("group_name", sa.Text(), primary_key=True),
                sa.Column("topic", sa.Text(), primary_key=True),
                sa.Column("partition", sa.Integer(), primary_key=True, autoincrement=False),
                sa.Column("fence", sa.BigInteger(), nullable=False),
            ],
        )

    def _own(self, name: str, parts: Callable[[], list[SchemaItem]]) -> sa.Table:
        """Return the table of that name; another ``Once`` may have created it in the MetaData."""
        schema, _, plain = name.rpartition(".")
        schema = schema or self.metadata.schema or ""
        there = self.metadata.tables.get(f"{schema}.{plain}" if schema else plain)
        if there is None:
            return sa.Table(
                plain, self.metadata, *parts(), schema=schema or None, info={_OURS: True}
            )
        if _OURS not in there.info:
            raise UsageError(
                f"Once: the MetaData already has a table {there.fullname}: let Once() define it, or"
                " give Once() another name, as in Once(..., table='effects')"
            )
        return there

    def needed(self, *, fenced: bool) -> list[sa.Table]:
        """Return the tables that must exist."""
        return [self.ids, self.fences] if fenced else [self.ids]

    def ddl(self, dialect: sa.Dialect, *, fenced: bool) -> str:
        """Return the SQL that creates the needed tables."""
        lines: list[str] = []
        for table in self.needed(fenced=fenced):
            elements: list[sa.DDLElement] = [CreateTable(table), *map(CreateIndex, table.indexes)]
            lines += [f"{str(each.compile(dialect=dialect)).strip()};" for each in elements]
        return "\n".join(lines)

    def check(self, connection: sa.Connection, *, fenced: bool) -> None:
        """Raise UsageError, with the DDL, if a table is missing or has other columns."""
        inspector = sa.inspect(connection)
        for table in self.needed(fenced=fenced):
            wrong = f"the table {table.fullname} does not exist"
            if inspector.has_table(table.name, schema=table.schema):
                there = {
                    each["name"] for each in inspector.get_columns(table.name, schema=table.schema)
                }
                key = inspector.get_pk_constraint(table.name, schema=table.schema)
                missing = set(table.columns.keys()) - there
                if not missing and set(key["constrained_columns"]) == {
                    each.name for each in table.primary_key
                }:
                    continue
                wrong = f"the table {table.fullname} has other columns, or another primary key"
            raise OnceTableError(
                f"{wrong}; create it with a migration or manually:\n"
                f"{self.ddl(connection.dialect, fenced=fenced)}"
            )

    def insert(
        self,
        session: EffectSession,
        owner: EffectOwner,
        keys: Sequence[EffectKey],
        lock_timeout_s: float,
    ) -> set[EffectKey]:
        """Insert the ids; return the new ones.

        Waits up to ``lock_timeout_s`` for other transactions with one of these ids. Raises
        IdsUnknownError if the database neither inserted an id nor has it.
        """
        connection = session.connection()
        unique = set(keys)
        ordered = sorted(unique)  # so that two batches with the same ids cannot deadlock
        insert = dialect_of(connection.dialect.name).insert_ids
        named = set(insert(connection, self.ids, owner, ordered, lock_timeout_s))
        if named != unique:
            there = self._there(connection, owner, sorted(unique - named))
            unknown = unique - named - there or named - unique
            if unknown:
                raise IdsUnknownError(
                    f"once: the database neither inserted nor has {len(unknown)} of"
                    f" {len(unique)} ids: does a trigger or a rule change {self.ids.fullname}?"
                )
        return named

    def _there(
        self, connection: sa.Connection, owner: EffectOwner, keys: Sequence[EffectKey]
    ) -> set[EffectKey]:
        """Return the ids that are already in the table."""
        table = self.ids.c
        there: set[EffectKey] = set()
        for first in range(0, len(keys), _QUERIED):
            statement = sa.select(table.origin, table.record_id).where(
                table.group_name == owner.group_name,
                table.worker == owner.worker,
                sa.tuple_(table.origin, table.record_id).in_(keys[first : first + _QUERIED]),
            )
            there.update(EffectKey(*each) for each in connection.execute(statement))
        return there

    def id_in(self, session: EffectSession) -> int:
        """Return the permanent, unique number of this database's fences."""
        connection = session.connection()
        table = self.fences
        statement = sa.select(table.c.fence).where(*is_at(table, _TABLES_ITSELF))
        found: int | None = connection.scalar(statement)
        if found is None:
            own = {**_TABLES_ITSELF._asdict(), "fence": secrets.randbits(63)}
            insert = dialect_of(connection.dialect.name).insert(table).values(own)
            connection.execute(insert.on_conflict_do_nothing())
            found = connection.execute(statement).scalar_one()
        return found

    def share_fence(
        self, session: EffectSession, place: FencePlace, limits: FenceLimits
    ) -> FenceSeen | None:
        """Return the current fence, which cannot be raised until the transaction ends."""
        connection = session.connection()
        return locks_of(connection).share(connection, self.fences, place, limits)

    def raise_fence(self, session: EffectSession, place: FencePlace, lock_timeout_s: float) -> int:
        """Increment and return a fence once the transactions with the old one have ended."""
        connection = session.connection()
        statements = dialect_of(connection.dialect.name)
        statements.limit_waits(connection, lock_timeout_s)
        table = self.fences
        locks_of(connection).take(connection, table, place)
        statement = statements.insert(table).values(**place._asdict(), fence=1)
        raised = statement.on_conflict_do_update(
            index_elements=list(table.primary_key), set_={"fence": table.c.fence + 1}
        )
        return int(connection.execute(raised.returning(table.c.fence)).scalar_one())

    def raised(self, connection: sa.Connection) -> list[tuple[FencePlace, int]]:
        """Return all fences, in the order of group, topic and partition."""
        table = self.fences
        statement = sa.select(table).where(table.c.partition >= 0).order_by(*table.primary_key)
        return [(FencePlace(*place), fence) for *place, fence in connection.execute(statement)]

    def fence_holders(self, session: EffectSession, place: FencePlace) -> Sequence[LockHolder]:
        """Return the known transactions that keep a fence from being raised."""
        connection = session.connection()
        return locks_of(connection).holders(connection, self.fences, place)

    def delete_old(
        self, connection: sa.Connection, owner: EffectOwner, keep_s: float
    ) -> int | None:
        """Delete up to ``MAX_DELETED`` ids older than ``keep_s``; return how many were deleted.

        None if another member is doing so.
        """
        delete = dialect_of(connection.dialect.name).delete_old
        return delete(connection, self.ids, owner, keep_s, MAX_DELETED)


MAX_DELETED: Final = 5_000
"""Rows per statement: its transaction takes about 20 ms, so others hardly wait for it."""


_QUERIED: Final = 500
"""Ids per query: drivers limit the parameters of a statement."""


class OnceTableError(UsageError):
    """A table of ``once`` is missing, or has other columns."""

    code = "WC143"
