"""Keeps tables small and fast: compaction, expired days, unused files, deleted keys.

It may run at the same time as jobs and queries. Jobs only append, which conflicts with nothing
here. If two runs conflict, the second repeats its part.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import date, timedelta
from functools import partial
from typing import Any, Final

import pyarrow as pa
from attrs import frozen
from deltalake import DeltaTable
from pyspark.sql import SparkSession

from window_consumer.model.errors import RunError
from window_consumer.spark.jobs import JOBS
from window_consumer.spark.plan import PipelinePlan
from window_consumer.spark.tables import BROKEN, Table

FULL_FILE_BYTES: Final = 128 * 1024**2
"""Smaller files are merged with their neighbours."""

SAFE_HOURS: Final = 168
"""One week: readers and writers of an unlisted file have long finished by then."""

_TIMES: Final = 5
"""Attempts if another writer interferes."""

_SORTED: Final = "spark.databricks.io.skipping.mdc.sortWithinFiles"
_LETTERS: Final = JOBS["dlq"]
TRACE: Final = JOBS["trace"].table
LETTERS: Final = _LETTERS.table
_CONFLICTS: Final = ("DELTA_CONCURRENT", "ConcurrentModificationException")
_LISTERS: Final = {"spark.sql.sources.parallelPartitionDiscovery.parallelism": "8"}
"""Tasks that list files. Spark's own 10,000 are for stores with millions of files."""


class BusyTableError(RunError):
    """Other writers repeatedly changed the same part of a table."""

    code = "WC178"


@frozen
class TableMaintenance:
    """The work done on one table."""

    name: str
    dropped: int
    """Rows of expired days."""
    compacted: int
    """Partitions whose small files were merged."""


def maintain(session: SparkSession, plan: PipelinePlan, today: date) -> Iterator[TableMaintenance]:
    """Maintain all tables of a plan, one after the other, except those not created yet.

    ``today`` is a UTC date. Rows older than the ``keep_days`` of their job are deleted, as are the
    job's quarantined records of that age.
    """
    before = {
        job: today - timedelta(days=job.keep_days(plan))
        for job in JOBS.values()
        if job.keep_days is not None
    }
    tables = dict.fromkeys([*(job.table for job in JOBS.values()), BROKEN])
    for table in tables:
        if not DeltaTable.is_deltatable(plan.table(table.name)):
            continue
        path = table.make(session, plan)
        dropped = 0
        for job, day in before.items():
            if table is BROKEN:
                dropped += drop_quarantined(session, path, job.name, day)
            elif table is job.table:
                drop = drop_written if job.may_lack_day else drop_days
                dropped += drop(session, path, day)
        compacted = compact(session, table, path)
        sweep(session, path)
        yield TableMaintenance(table.name, dropped, compacted)


@frozen
class DeletedKey:
    """The rows deleted from the tables."""

    steps: int
    letters: int
    quarantined: int


def delete_key(
    session: SparkSession,
    plan: PipelinePlan,
    key: str,
    form: str | None,
    letters: Sequence[str] = (),
) -> DeletedKey:
    """Delete a key's records from the tables and their files.

    ``form`` is the key as the trace has it, None if it has no keys; ``letters`` are its forms in
    the table of dead letters. Dead letters of records with the key in the trace are deleted, too.
    """
    has_trace, has_letters, has_broken = (
        DeltaTable.is_deltatable(plan.table(table.name)) for table in (TRACE, LETTERS, BROKEN)
    )
    trace = plan.table(TRACE.name) if has_trace and form is not None else None
    dropped = steps = quarantined = 0
    if has_letters:  # before the steps, which name the records
        path = LETTERS.make(session, plan)
        dropped = delete_dead_letters(session, path, letters, trace, form)
        wipe(session, path)
    if trace is not None and form is not None:
        steps = delete_trace_of_key(session, TRACE.make(session, plan), form)
        wipe(session, trace)
    if has_broken:
        path = BROKEN.make(session, plan)
        names = dict.fromkeys(each for each in (key, form) if each is not None)
        quarantined = sum(delete_quarantined(session, path, each) for each in names)
        wipe(session, path)
    return DeletedKey(steps, dropped, quarantined)


def compact(session: SparkSession, table: Table, path: str) -> int:
    """Merge small files, in the table's order; return the number of partitions.

    Each partition's files become few, sorted for lookups, with their bloom filters.
    """
    small: dict[tuple[str, ...], int] = defaultdict(int)
    for part, size in _files(table, path):
        small[part] += size < FULL_FILE_BYTES
    by_first: dict[str, list[tuple[str, ...]]] = defaultdict(list)
    for part, count in small.items():
        if count > 1:
            by_first[part[0]].append(part)
    order = f" ZORDER BY ({table.sorted_by[0]})" if table.sorted_by else ""
    with _settings(session, {**table.layout, _SORTED: "true"}):
        for parts in by_first.values():
            where = " OR ".join(f"({_condition(table, part)})" for part in parts)
            _again(partial(session.sql, f"OPTIMIZE delta.`{path}` WHERE {where}{order}"))
    return sum(map(len, by_first.values()))


def drop_days(session: SparkSession, path: str, before: date) -> int:
    """Delete the days before a day; return the number of rows."""
    return _delete(session, f"DELETE FROM delta.`{path}` WHERE day < {_day(before)}")  # noqa: S608 - our own


def drop_written(session: SparkSession, path: str, before: date) -> int:
    """Delete the days before a day, and rows without a day that were written before it."""
    timeless = f"day IS NULL AND written_at < {_begin(before)}"
    old = f"day < {_day(before)} OR ({timeless})"
    return _delete(session, f"DELETE FROM delta.`{path}` WHERE {old}")  # noqa: S608 - our own


def drop_quarantined(session: SparkSession, path: str, subject: str, before: date) -> int:
    """Delete records quarantined before a day; return their number."""
    old = f"subject = {_text(subject)} AND written_at < {_begin(before)}"
    return _delete(session, f"DELETE FROM delta.`{path}` WHERE {old}")  # noqa: S608 - literals


def delete_trace_of_key(session: SparkSession, path: str, key: str) -> int:
    """Delete all steps of the records with a key; return the number.

    This includes steps of such records without the key. The files keep them until ``wipe``.
    """
    has_key = f"key = {_text(key)}"
    of_records = _delete(
        session,
        f"MERGE INTO delta.`{path}` AS step USING (SELECT DISTINCT record_id FROM delta.`{path}`"  # noqa: S608 - literals
        f" WHERE {has_key} AND record_id IS NOT NULL) AS named"
        " ON step.record_id = named.record_id WHEN MATCHED THEN DELETE",
    )
    return of_records + _delete(session, f"DELETE FROM delta.`{path}` WHERE {has_key}")  # noqa: S608 - as above


def delete_dead_letters(
    session: SparkSession, path: str, forms: Sequence[str], trace: str | None, form: str | None
) -> int:
    """Delete a key's dead letters, in these forms or by the records that the trace names.

    Returns how many. The files keep them until ``wipe``.
    """
    count = 0
    if trace is not None and form is not None:
        count = _delete(
            session,
            f"MERGE INTO delta.`{path}` AS letter USING (SELECT DISTINCT record_id FROM"  # noqa: S608 - literals
            f" delta.`{trace}` WHERE key = {_text(form)} AND record_id IS NOT NULL) AS named"
            f" ON {_LETTERS.record_of} = named.record_id WHEN MATCHED THEN DELETE",
        )
    if forms:
        listed = ", ".join(map(_text, forms))
        count += _delete(session, f"DELETE FROM delta.`{path}` WHERE key IN ({listed})")  # noqa: S608 - as above
    return count


def delete_quarantined(session: SparkSession, path: str, key: str) -> int:
    """Delete quarantined events and dead letters that contain a key; return the number."""
    quoted = _text(json.dumps(key))
    named = f"subject IN ('trace', 'dlq') AND contains(CAST(value AS STRING), {quoted})"
    return _delete(session, f"DELETE FROM delta.`{path}` WHERE {named}")  # noqa: S608 - literals


def sweep(session: SparkSession, path: str) -> None:
    """Delete files that the table has not needed for a week, including those of killed writers."""
    with _settings(session, _LISTERS):
        _again(lambda: session.sql(f"VACUUM delta.`{path}` RETAIN {SAFE_HOURS} HOURS"))


def wipe(session: SparkSession, path: str) -> None:
    """Delete all files that the table's log has removed, at once, and no others.

    Files that a running job is about to add are not in the log yet, and stay. A reader of an
    earlier version of the table may find its files missing, and must retry.
    """
    unchecked = {"spark.databricks.delta.retentionDurationCheck.enabled": "false"}
    with _settings(session, {**_LISTERS, **unchecked}):
        _again(lambda: session.sql(f"VACUUM delta.`{path}` LITE RETAIN 0 HOURS"))


def _files(table: Table, path: str) -> Iterator[tuple[tuple[str, ...], int]]:
    """Yield the partition and the size of each file."""
    rows = pa.table(DeltaTable(path).get_add_actions(flatten=True)).to_pylist()
    for row in rows:
        values = [row[f"partition.{name}"] for name in table.partitioned_by]
        if None not in values:
            yield tuple(map(str, values)), row["size_bytes"]


def _condition(table: Table, part: tuple[str, ...]) -> str:
    kinds = {each.name: each.dataType.simpleString() for each in table.schema}
    return " AND ".join(
        f"{name} = CAST('{value}' AS {kinds[name]})"
        for name, value in zip(table.partitioned_by, part, strict=True)
    )


def _delete(session: SparkSession, sql: str) -> int:
    row = _again(lambda: session.sql(sql).first())
    return int(row["num_affected_rows"]) if row is not None else 0


def _text(text: str) -> str:
    """Return a text as an injection-proof literal: Delta's DELETE has no parameters."""
    return f"CAST(X'{text.encode().hex()}' AS STRING)"


def _day(day: date) -> str:
    return f"DATE'{day.isoformat()}'"


def _begin(day: date) -> str:
    """Return the beginning of a day in UTC: Spark compares dates in the session's time zone."""
    return f"TIMESTAMP'{day.isoformat()} 00:00:00 UTC'"


def _again(action: Callable[[], Any]) -> Any:
    """Run the action; retry it if another writer came first."""
    for _ in range(_TIMES):
        try:
            return action()
        except Exception as error:
            if not any(sign in str(error) for sign in _CONFLICTS):
                raise
            last = error
    raise BusyTableError(
        f"a table changed {_TIMES} times during maintenance: retry later, and run it in one"
        " process only"
    ) from last


@contextmanager
def _settings(session: SparkSession, given: Mapping[str, str]) -> Iterator[None]:
    """Set properties of a session temporarily: others may share it."""
    before = {key: session.conf.get(key, None) for key in given}
    for key, value in given.items():
        session.conf.set(key, value)
    try:
        yield
    finally:
        for key, earlier in before.items():
            if earlier is None:
                session.conf.unset(key)
            else:
                session.conf.set(key, earlier)
