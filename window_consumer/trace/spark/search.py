"""Queries the table of trace events with DuckDB, over the files that Delta's log names.

This needs neither Spark nor Java: a query finishes before a session would have started. Events that
are stored twice are returned once, in any order of arrival.
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Callable, Iterable, Sequence
from datetime import UTC, date, datetime
from typing import Any, Final

import duckdb
from deltalake import DeltaTable
from deltalake.exceptions import TableNotFoundError

from window_consumer.model.errors import UsageError
from window_consumer.spark.plan import BUCKETS, GENERATION, writer_of
from window_consumer.trace.event import FIELDS, TraceEvent
from window_consumer.trace.query import TraceQuery

MOST_STEPS: Final = 10_000
"""The most steps of one record to show."""

_COLUMNS: Final = ", ".join(f'"{each.name}"' for each in FIELDS)
_KINDS: Final = {str: "VARCHAR", int: "BIGINT", float: "DOUBLE"}
_NOTHING: Final = ", ".join(
    f'CAST(NULL AS {_KINDS[each.kind]}) AS "{each.name}"' for each in FIELDS
)
"""All columns and no rows, because files of an older version lack some columns."""

_DISTINCT: Final = "QUALIFY row_number() OVER (PARTITION BY event_id ORDER BY time_us) = 1"


class NoTableError(UsageError):
    """The pipeline has not created the table yet, or the path is wrong."""

    code = "WC180"


class Index:
    """A snapshot of the table of events, taken when opened or refreshed. Owner: one thread."""

    def __init__(self, path: str):
        """Open the table; raise NoTableError if there is none."""
        try:
            self._table = DeltaTable(path)
        except TableNotFoundError as error:
            raise NoTableError(
                f"there is no table of trace events at {path}: `window-consumer pipeline run"
                " trace` creates it"
            ) from error
        self._path = path.rstrip("/")
        self._database = duckdb.connect()

    def refresh(self) -> None:
        """Load the current version of the table."""
        self._table.update_incremental()

    def find(self, question: TraceQuery, most: int) -> list[TraceEvent]:
        """Return the latest ``most`` matching events, ordered by time."""
        where, values = question.conditions()
        found = self._rows(
            f"SELECT {_COLUMNS} FROM {{files}} WHERE {where} {_DISTINCT}"  # noqa: S608 - names of our own
            " ORDER BY time_us DESC, event_id LIMIT ?",
            [*values, most],
            self._files(question),
        )
        # Fields that an older version did not write get their defaults.
        events = [
            TraceEvent(**{key: value for key, value in row.items() if value is not None})
            for row in found
        ]
        return in_order(events)

    def journey(self, record: str, cluster: str | None = None) -> list[TraceEvent]:
        """Return all steps of a record and of the records that it caused, ordered by time.

        ``record`` is a record's id: its ``wc-id``, or ``topic/partition/offset``.
        """
        found = self.find(TraceQuery(root=record, cluster=cluster), MOST_STEPS)
        return found or self.find(TraceQuery(record=record, cluster=cluster), MOST_STEPS)

    def count(self, question: TraceQuery) -> int:
        """Return how many rows match; duplicates count twice."""
        where, values = question.conditions()
        sql = f"SELECT count(*) AS n FROM {{files}} WHERE {where}"  # noqa: S608 - as above
        return sum(row["n"] for row in self._rows(sql, values, self._files(question)))

    def records(self, question: TraceQuery) -> list[str]:
        """Return the ids of the records with matching rows."""
        where, values = question.conditions()
        sql = f"SELECT DISTINCT record_id AS id FROM {{files}} WHERE {where}"  # noqa: S608 - as above
        rows = self._rows(sql, values, self._files(question))
        return [row["id"] for row in rows if row["id"] is not None]

    def read_up_to(self, checkpoint: Callable[[int], str], topic: str) -> dict[int, int] | None:
        """Return the next offset of each partition of the event topic that the table lacks.

        None if unknown: nothing was read yet, or the job's ``checkpoint`` (by generation) is
        missing or belongs to another topic.
        """
        number = self._table.transaction_version(writer_of("trace"))
        if number is None:
            return None
        generation, batch = divmod(number, GENERATION)
        try:
            rows = self._database.execute(
                "SELECT content FROM read_text(?)", [f"{checkpoint(generation)}/offsets/{batch}"]
            ).fetchall()
            # Line 1 has the file's version, line 2 the batch, and each further line a source.
            offsets = json.loads(rows[0][0].splitlines()[2])[topic]
            return {int(partition): int(offset) for partition, offset in offsets.items()}
        except (duckdb.IOException, IndexError, KeyError, TypeError, ValueError):
            return None

    def _files(self, question: TraceQuery) -> list[str]:
        """Return the names of the files that may contain matches, in the form that DuckDB needs."""
        files = self._table.file_uris(file_pruning_predicate=_bounds(question) or None)
        root = self._table.table_uri.rstrip("/")
        if not root.startswith("file://"):
            return files
        # Delta returns URLs, in which a space is %20; DuckDB needs file names.
        return [self._path + each.removeprefix("file://")[len(_plain(root)) :] for each in files]

    def _rows(self, sql: str, values: Sequence[Any], files: Sequence[str]) -> list[dict[str, Any]]:
        if not files:
            return []
        listed = ", ".join("'" + name.replace("'", "''") + "'" for name in files)
        source = (
            f"(SELECT {_NOTHING} WHERE false UNION ALL BY NAME"  # noqa: S608 - files of the table
            f" SELECT * FROM read_parquet([{listed}], union_by_name = true))"
        )
        result = self._database.execute(sql.replace("{files}", source), values)
        names = [each[0] for each in result.description]
        return [dict(zip(names, row, strict=True)) for row in result.fetchall()]


def in_order(events: Iterable[TraceEvent]) -> list[TraceEvent]:
    """Return events ordered by time, without duplicates."""
    once = {event.event_id: event for event in events}
    return sorted(once.values(), key=lambda event: (event.time_us, event.event_id))


def _plain(uri: str) -> str:
    return uri.removeprefix("file://")


def _bounds(question: TraceQuery) -> list[tuple[str, str, Any]]:
    """Return filters that exclude whole files."""
    found: list[tuple[str, str, Any]] = []
    if question.root is not None:
        found.append(("bucket", "=", zlib.crc32(question.root.encode()) % BUCKETS))
    if question.since_us is not None:
        found += [("day", ">=", _day(question.since_us)), ("time_us", ">=", question.since_us)]
    if question.until_us is not None:
        found += [("day", "<=", _day(question.until_us)), ("time_us", "<", question.until_us)]
    return found


def _day(microseconds: int) -> date:
    return datetime.fromtimestamp(microseconds / 1e6, UTC).date()
