"""The tables of ``once`` and their statements: ids of finished records, and fences."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

import sqlalchemy as sa
from sqlalchemy.dialects import postgresql
from sqlalchemy.orm import Session
from sqlalchemy.schema import CreateIndex, CreateTable

from window_consumer.database.once.statements import EffectKey, EffectOwner, statements_of
from window_consumer.model.errors import UsageError


class FencePlace(NamedTuple):
    """What a fence is for."""

    group_name: str
    topic: str
    partition: int


_TEXT: Final = sa.Text().with_variant(postgresql.TEXT(collation="C"), "postgresql")
"""Compared byte by byte: a language's order makes the index slower."""


class OnceTables:
    """The two tables, in a MetaData of their own."""

    def __init__(self, name: str):
        schema, _, plain = name.rpartition(".")
        self.metadata = sa.MetaData()
        self.ids = sa.Table(
            plain,
            self.metadata,
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
            # Rows are appended in the order of their times, so a block range index suffices.
            sa.Index(f"ix_{plain}_done_at", "done_at", postgresql_using="brin"),
            schema=schema or None,
        )
        self.fences = sa.Table(
            f"{plain}_fence",
            self.metadata,
            sa.Column("group_name", sa.Text(), primary_key=True),
            sa.Column("topic", sa.Text(), primary_key=True),
            sa.Column("partition", sa.Integer(), primary_key=True, autoincrement=False),
            sa.Column("fence", sa.BigInteger(), nullable=False),
            schema=schema or None,
        )

    def needed(self, *, fenced: bool) -> list[sa.Table]:
        """Return the tables that have to be there."""
        return [self.ids, self.fences] if fenced else [self.ids]

    def ddl(self, dialect: sa.Dialect, *, fenced: bool) -> str:
        """Return the SQL that creates what is needed."""
        lines: list[str] = []
        for table in self.needed(fenced=fenced):
            elements: list[sa.DDLElement] = [CreateTable(table), *map(CreateIndex, table.indexes)]
            lines += [f"{str(each.compile(dialect=dialect)).strip()};" for each in elements]
        return "\n".join(lines)

    def check(self, connection: sa.Connection, *, fenced: bool) -> None:
        """Raise UsageError, with the DDL, where a table is missing or has other columns."""
        inspector = sa.inspect(connection)
        for table in self.needed(fenced=fenced):
            wrong = f"the database has no table {table.fullname}"
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
                f"{wrong}; create it with a migration, or by hand:\n"
                f"{self.ddl(connection.dialect, fenced=fenced)}"
            )

    def insert(
        self,
        session: Session,
        owner: EffectOwner,
        keys: Sequence[EffectKey],
        lock_timeout_s: float,
    ) -> set[EffectKey]:
        """Insert the ids; return those that nobody had inserted, once each.

        Waits for other transactions with one of these ids, for ``lock_timeout_s`` at most.
        """
        connection = session.connection()
        unique = set(keys)
        ordered = sorted(unique)  # two batches with the same ids cannot wait for each other
        insert = statements_of(connection).insert_ids
        inserted = insert(connection, self.ids, owner, ordered, lock_timeout_s)
        return unique if inserted is ordered else set(inserted)

    def fence_of(self, session: Session, place: FencePlace) -> int | None:
        """Return the present fence; nobody can raise it until the transaction ends."""
        table = self.fences
        statement = sa.select(table.c.fence).where(*_is(table, place)).with_for_update(read=True)
        fence: int | None = session.connection().scalar(statement)
        return fence

    def raise_fence(self, session: Session, place: FencePlace, lock_timeout_s: float) -> int:
        """Add one to a fence and return it, once the transactions with the old one have ended."""
        connection = session.connection()
        statements = statements_of(connection)
        statements.limit_waits(connection, lock_timeout_s)
        table = self.fences
        statement = statements.insert(table).values(**place._asdict(), fence=1)
        raised = statement.on_conflict_do_update(
            index_elements=list(table.primary_key), set_={"fence": table.c.fence + 1}
        )
        return int(connection.execute(raised.returning(table.c.fence)).scalar_one())

    def delete_old(
        self, connection: sa.Connection, owner: EffectOwner, keep_s: float
    ) -> int | None:
        """Delete ids that are older, at most ``MAX_DELETED``; return how many they were.

        None if another member does so just now.
        """
        delete = statements_of(connection).delete_old
        return delete(connection, self.ids, owner, keep_s, MAX_DELETED)


MAX_DELETED: Final = 5_000
"""Rows of one statement: its transaction takes some 20 ms, and others hardly wait for it."""


class OnceTableError(UsageError):
    """A table of ``once`` is missing, or has other columns."""


def _is(table: sa.Table, place: FencePlace) -> list[sa.ColumnElement[bool]]:
    return [table.c[name] == value for name, value in place._asdict().items()]
