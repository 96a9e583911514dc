"""Which dead letters in the table are of the records with a key. Needs no Spark.

A row is one of them where its key says so, or where the trace says that the record had the key: a
table may have keys as codes, masked, or not at all.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

import duckdb
from attrs import frozen
from deltalake import DeltaTable
from deltalake.exceptions import TableNotFoundError

from window_consumer.dlq.spark.reader import RECORD, stored_key
from window_consumer.model.key_forms import CODE
from window_consumer.spark.plan import PipelinePlan


@frozen
class DeadLettersOfKey:
    """What tells the rows of a key."""

    path: str
    """Where the table lies."""
    forms: tuple[str, ...]
    """The key as this table has it; none where that is not known, or others look the same."""
    count: int
    """Of rows, now."""


def is_there(plan: PipelinePlan, table: str) -> bool:
    """Tell whether a table was made yet."""
    return bool(DeltaTable.is_deltatable(plan.table(table)))


def find(plan: PipelinePlan, key: str, records: Collection[str]) -> DeadLettersOfKey | None:
    """Return what tells the rows of a key, None where there is no table of dead letters.

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
    reading = plan.dlq_reading
    if key.startswith(CODE):
        return (key,) if reading.keys == "hmac" else ()
    topics: list[Any] = database.execute(
        "SELECT DISTINCT topic, original_topic FROM letters"
    ).fetchall()
    found = (stored_key(key.encode(), reading, each) for each in topics)
    return tuple(sorted({each for each in found if each is not None}))
