"""Rows that another session has locked, such as a person's psql: the relay skips them."""

from __future__ import annotations

import time
import uuid
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Final

import sqlalchemy as sa
from sqlalchemy.exc import DBAPIError

from window_consumer.database.dialects.dialect import LOCK_TIMEOUT, SqlDialect, sqlstate_of
from window_consumer.database.outbox.row import OutboxRow
from window_consumer.model.log_events import LogEvent
from window_consumer.runtime.log import own_logger

CAREFUL_S: Final = 60.0
"""How long the relay locks rows before it sends them, after it found one locked. Normally it does
not, because the locking statement would cost a tenth of its throughput."""
_QUIET_S: Final = 10.0

_log = own_logger()


class LockedRows:
    """Finds rows that other sessions have locked. Owner: the thread whose connection is used."""

    def __init__(self, table: sa.Table, dialect: SqlDialect):
        self._table = table
        self._dialect = dialect
        self._until = float("-inf")
        self._logged_at = float("-inf")

    @property
    def are_expected(self) -> bool:
        """Whether a row was found locked recently."""
        return time.monotonic() < self._until

    @contextmanager
    def noticed(self) -> Iterator[None]:
        """Expect locked rows from now on if a change times out on one; the error propagates."""
        try:
            yield
        except DBAPIError as error:
            if sqlstate_of(error) == LOCK_TIMEOUT:
                self._report("rows are")
            raise

    def without(self, connection: sa.Connection, rows: Sequence[OutboxRow]) -> list[OutboxRow]:
        """Lock rows until the transaction ends; return those that may be sent, in order.

        Leaves out rows that another session has locked, and later rows of their keys.
        """
        free = set(self._free(connection, [(row.id, row.topic, row.key) for row in rows]))
        return [row for row in rows if row.id in free]

    def markable(self, connection: sa.Connection, ids: Sequence[uuid.UUID]) -> Sequence[uuid.UUID]:
        """Lock rows that Kafka has; return those that may be marked now.

        The others are sent again, each together with later rows of its key, to keep their order.
        """
        row = self._table.c
        chosen = self._dialect.in_ids(row.id, list(ids))
        statement = sa.select(row.id, row.topic, row.key).where(chosen).order_by(row.seq)
        return self._free(connection, [tuple(each) for each in connection.execute(statement)])

    def _free(
        self, connection: sa.Connection, rows: Sequence[tuple[uuid.UUID, str, bytes | None]]
    ) -> list[uuid.UUID]:
        row_id = self._table.c.id
        chosen = self._dialect.in_ids(row_id, [each[0] for each in rows])
        statement = sa.select(row_id).where(chosen).with_for_update(skip_locked=True)
        ours = set(connection.scalars(statement))
        if len(ours) < len(rows):
            self._report(f"{len(rows) - len(ours)} rows are")
        waiting: set[tuple[str, bytes]] = set()
        free = []
        for each, topic, key in rows:
            if each in ours and (key is None or (topic, key) not in waiting):
                free.append(each)
            elif key is not None:
                waiting.add((topic, key))
        return free

    def _report(self, which: str) -> None:
        now = time.monotonic()
        self._until = now + CAREFUL_S
        if now - self._logged_at < _QUIET_S:
            return
        self._logged_at = now
        _log.warning(
            "outbox: %s locked by another session (a transaction left open?): these rows and later"
            " ones of their keys wait for it, the others are sent",
            which,
            extra={"event": LogEvent.OUTBOX_ROWS_LOCKED},
        )
