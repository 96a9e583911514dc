"""Finds the dead letters of a key in the table. Needs no Spark.

A row matches if its key does, or if the trace says that its record had the key: a table may hold
keys as codes, masked, or not at all.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

import duckdb
from attrs import frozen
from deltalake import DeltaTable
from deltalake.exceptions import TableNotFoundError

from window_consumer.dlq.spark.config import Reading
from window_consumer.dlq.spark.reader import RECORD, stored_key
from window_consumer.model.key_forms import CODE
from window_consumer.spark.plan import PipelinePlan


@frozen
class DeadLettersOfKey:
    """The condition that selects the rows of a key."""

    path: str
    """The path of the table."""
    forms: tuple[str, ...]
    """The key in this table's form; empty if unknown or if other keys look the same."""
    count: int
    """The current number of rows."""


def is_there(plan: PipelinePlan, table: str) -> bool:
    """Return whether a table exists yet."""
    return bool(DeltaTable.is_deltatable(plan.table(table)))


def find(plan: PipelinePlan, key: str, records: Collection[str]) -> DeadLettersOfKey | None:
    """Return the selection for a key, None if there is no table of dead letters.

    ``records`` are the ids of its records in the trace. ``key`` may be the code of a key.
    """
    path = plan.table("dead_letters")
    try:
        rows = DeltaTable(path).to_pyarrow_dataset()
    except TableNotFoundError:
        return None
    with duckdb.connect() as database:
        database.register("letters", rows)
        forms = _forms(plan, key, database)
        database.execute("CREATE TABLE named (record VARCHAR)")
        if records:
            database.executemany("INSERT INTO named VALUES (?)", [[each] for each in records])
        database.execute("CREATE TABLE forms (form VARCHAR)")
        if forms:
            database.executemany("INSERT INTO forms VALUES (?)", [[each] for each in forms])
        wanted = (
            "SELECT count(*) FROM letters WHERE key IN (SELECT form FROM forms)"  # noqa: S608 - a constant
            f" OR {RECORD} IN (SELECT record FROM named)"
        )
        ((count,),) = database.execute(wanted).fetchall()
    return DeadLettersOfKey(path, forms, count)


def _forms(plan: PipelinePlan, key: str, database: duckdb.DuckDBPyConnection) -> tuple[str, ...]:
    reading = Reading.of(plan)
    if key.startswith(CODE):
        return (key,) if reading.keys == "hmac" else ()
    topics: list[Any] = database.execute(
        "SELECT DISTINCT topic, original_topic FROM letters"
    ).fetchall()
    found = (stored_key(key.encode(), reading, each) for each in topics)
    return tuple(sorted({each for each in found if each is not None}))
