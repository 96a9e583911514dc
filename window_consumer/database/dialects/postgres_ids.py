"""Inserts ids into PostgreSQL, with one statement that limits its own lock waits."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from typing import Any, Final

import sqlalchemy as sa

from window_consumer.database.dialects.dialect import (
    LOCK_TIMEOUT,
    RETRYABLE,
    EffectKey,
    EffectOwner,
)

_IDLE: Final = 0
"""libpq's status of a connection without a transaction."""
_HAS_ROWS: Final = 2
"""libpq's status of a result with rows."""
_SQLSTATE: Final = ord("C")
"""libpq's number of the field with an error's code."""


def insert_in_postgres(
    connection: sa.Connection,
    table: sa.Table,
    owner: EffectOwner,
    keys: Sequence[EffectKey],
    lock_timeout_s: float,
) -> list[EffectKey]:
    """Insert ids; return those that PostgreSQL reports as inserted.

    The statement sets ``lock_timeout`` and restores it.
    """
    ms = str(max(1, round(lock_timeout_s * 1000)))
    named = _with_begin(connection, table, owner, keys, ms)
    if named is None:
        bound = {
            "ms": ms,
            "group_name": owner.group_name,
            "worker": owner.worker,
            "origins": [key.origin for key in keys],
            "record_ids": [key.record_id for key in keys],
        }
        named = connection.execute(_bound_to(connection, table), bound).scalar_one()
    return [EffectKey(*each) for each in json.loads(named or "[]")]


_INSERT: Final = """\
WITH bound AS MATERIALIZED (
  SELECT current_setting('lock_timeout') AS before, set_config('lock_timeout', {ms}, true) AS now
), added AS (
  INSERT INTO {table} (group_name, worker, origin, record_id)
  SELECT {group_name}, {worker}, given.origin, given.record_id
  FROM bound, {given} AS given (origin, record_id)
  WHERE bound.now IS NOT NULL
  ON CONFLICT DO NOTHING
  RETURNING origin, record_id
)
SELECT CAST(json_agg(json_build_array(origin, record_id)) AS text),
  set_config('lock_timeout', (SELECT before FROM bound), true)
FROM added"""


def _bound_to(connection: sa.Connection, table: sa.Table) -> sa.TextClause:
    name = connection.dialect.identifier_preparer.format_table(table)
    sql = _INSERT.format(
        ms=":ms",
        table=name.replace(":", "\\:"),
        group_name=":group_name",
        worker=":worker",
        given="unnest(:origins, :record_ids)",
    )
    texts = sa.ARRAY(sa.Text())
    return sa.text(sql).bindparams(
        *(sa.bindparam(each, type_=sa.Text()) for each in ("ms", "group_name", "worker")),
        *(sa.bindparam(each, type_=texts) for each in ("origins", "record_ids")),
    )


def _with_begin(
    connection: sa.Connection,
    table: sa.Table,
    owner: EffectOwner,
    keys: Sequence[EffectKey],
    ms: str,
) -> bytes | str | None:
    """Begin the transaction and insert in one message, bypassing SQLAlchemy's cursor.

    This halves the cost of an id. A message with two statements takes no parameters, so libpq
    quotes the values. Returns the JSON of the result; None if this is not possible here, or failed
    in a way that an ordinary statement reports better.
    """
    dialect = connection.dialect
    if dialect.driver != "psycopg" or dialect.is_async:
        return None
    raw: Any = connection.connection.driver_connection
    modes = (raw.autocommit, raw.isolation_level, raw.read_only, raw.deferrable)
    client = raw.pgconn
    if (
        any(each is not None and each is not False for each in modes)
        or client.transaction_status != _IDLE
        or raw.info.encoding != "utf-8"
    ):
        return None
    quote = _quoting(client)
    sql = _INSERT.format(
        ms=quote(ms),
        table=dialect.identifier_preparer.format_table(table),
        group_name=quote(owner.group_name),
        worker=quote(owner.worker),
        given=f"(VALUES {', '.join(f'({quote(each[0])}, {quote(each[1])})' for each in keys)})",
    )
    result = client.exec_(f"BEGIN; {sql}".encode())
    if result.status == _HAS_ROWS:
        return result.get_value(0, 0) or b"[]"
    code = (result.error_field(_SQLSTATE) or b"").decode()
    if code == LOCK_TIMEOUT or code in RETRYABLE:
        raise sa.exc.OperationalError(sql, None, _CodedError(code))
    client.exec_(b"ROLLBACK")
    return None


def _quoting(client: Any) -> Callable[[str], str]:
    """Return a function that quotes a literal for the connection's encoding and settings."""
    from psycopg import pq  # noqa: PLC0415 - one of several drivers

    quote = pq.Escaping(client).escape_literal
    return lambda text: quote(text.encode()).decode()


class _CodedError(Exception):
    """PostgreSQL's error, in the form of a driver's exception."""

    @property
    def sqlstate(self) -> str:
        """The SQLSTATE code."""
        return str(self.args[0])
