"""The tables of ``once`` in the MetaData of an application, and what Alembic makes of them."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import sqlalchemy as sa
from alembic.autogenerate import compare_metadata
from alembic.runtime.migration import MigrationContext

from tests.database.once_shop import OnceShop
from tests.waiting import wait_until
from window_consumer.database import Once, Outbox
from window_consumer.model.errors import UsageError

CONVENTION = {"ix": "index_%(table_name)s_%(column_0_N_name)s", "pk": "key_of_%(table_name)s"}


@pytest.fixture
def engine(url: str) -> Iterator[sa.Engine]:
    engine = sa.create_engine(url)
    yield engine
    engine.dispose()


def differences(engine: sa.Engine, metadata: sa.MetaData | list[sa.MetaData]) -> list[object]:
    """Return what Alembic's autogenerate proposes with ``target_metadata = metadata``."""
    with engine.connect() as connection:
        options = {
            "compare_type": True,
            # SQLite has no identity columns, so Alembic would miss that of the outbox.
            "compare_server_default": engine.dialect.name != "sqlite",
            "include_schemas": True,
            "target_metadata": metadata,
        }
        return list(
            compare_metadata(MigrationContext.configure(connection, opts=options), metadata)  # type: ignore[arg-type] # it takes a list, as env.py does
        )


@pytest.mark.parametrize("schema", [None, "sales"])
def test_alembic_proposes_nothing_with_the_metadata_of_the_application(
    engine: sa.Engine, schema: str | None
) -> None:
    if schema is not None and engine.dialect.name == "sqlite":
        engine = engine.execution_options()
        sa.event.listen(engine, "connect", _attach)
    elif schema is not None:
        with engine.begin() as connection:
            connection.execute(sa.schema.CreateSchema(schema))
    metadata = sa.MetaData(schema=schema, naming_convention=CONVENTION)
    sa.Table("orders", metadata, sa.Column("id", sa.Integer, primary_key=True))
    once = Once(engine, outbox=Outbox(metadata), metadata=metadata, fenced=True)
    added = [each[1].fullname for each in differences(engine, metadata) if each[0] == "add_table"]  # type: ignore[index] # a tuple
    prefix = f"{schema}." if schema else ""
    named = ("orders", "wc_once", "wc_once_fence", "wc_outbox")
    assert sorted(added) == [f"{prefix}{each}" for each in named]
    metadata.create_all(engine)
    assert differences(engine, metadata) == []
    assert differences(engine, sa.MetaData()) != []
    assert once.tables.metadata is metadata
    assert once.table.schema == schema
    assert once.table.primary_key.name == "key_of_wc_once"
    assert [each.name for each in once.table.indexes] == ["index_wc_once_done_at"]
    with engine.connect() as connection:
        once.tables.check(connection, fenced=True)


def _attach(connection: sa.engine.interfaces.DBAPIConnection, _record: object) -> None:
    cursor = connection.cursor()
    cursor.execute("ATTACH ':memory:' AS sales")
    cursor.close()


def test_alembic_proposes_nothing_with_both_metadata(engine: sa.Engine) -> None:
    metadata = sa.MetaData()
    sa.Table("orders", metadata, sa.Column("id", sa.Integer, primary_key=True))
    once = Once(engine)
    both = [metadata, once.tables.metadata]
    for each in both:
        each.create_all(engine)
    assert differences(engine, both) == []
    assert [each.name for each in once.table.indexes] == ["ix_wc_once_done_at"]


def test_tables_that_the_ddl_creates_are_those_of_the_metadata(engine: sa.Engine) -> None:
    metadata = sa.MetaData(naming_convention=CONVENTION)
    once = Once(engine, metadata=metadata)
    with engine.begin() as connection:
        for statement in once.tables.ddl(engine.dialect, fenced=True).split(";"):
            if statement.strip():
                connection.execute(sa.text(statement))
    assert differences(engine, metadata) == []


def test_two_onces_share_tables_of_one_metadata() -> None:
    metadata, engine = sa.MetaData(), sa.create_engine("sqlite://")
    first, second = (Once(engine, metadata=metadata, fenced=fenced) for fenced in (False, True))
    other = Once(engine, metadata=metadata, table="effects")
    assert first.table is second.table
    assert first.tables.fences is second.tables.fences
    assert set(metadata.tables) == {"wc_once", "wc_once_fence", "effects", "effects_fence"}
    assert other.table.name == "effects"


def test_another_table_of_that_name_is_refused() -> None:
    metadata = sa.MetaData()
    sa.Table("wc_once", metadata, sa.Column("id", sa.Integer))
    with pytest.raises(UsageError, match="wc_once"):
        Once(sa.create_engine("sqlite://"), metadata=metadata)


def test_a_call_writes_into_the_schema_of_the_metadata(shop_in_postgres: OnceShop) -> None:
    shop = shop_in_postgres
    shop.run("CREATE SCHEMA sales")
    once = shop.once(metadata=sa.MetaData(schema="sales", naming_convention=CONVENTION))
    shop.fill("a", "a", ids=("1", "1"))
    with shop.start(once, ordering="partition", retry={"on_failure": "overtake"}) as running:
        wait_until(lambda: running.counters["place"].finished == 2)
        did = running.counters["place"]
    assert (did.processed, did.deduplicated) == (1, 1)
    assert [row.record_id for row in shop.rows(once.table)] == ["1"]
