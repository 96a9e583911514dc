"""Deletes rows that were published more than ``outbox.keep`` ago, as fast as rows are sent."""

from __future__ import annotations

import time
from typing import Final

import sqlalchemy as sa
from attrs import define
from sqlalchemy.exc import DBAPIError

from window_consumer.database.outbox.store import OutboxStore
from window_consumer.model.log_events import LogEvent
from window_consumer.runtime.log import own_logger

MAX_DELETED: Final = 5_000
"""Rows per statement and thus per transaction: few enough to keep it short, with few locks."""
_EVERY_S: Final = 5.0
_FAILED_S: Final = 60.0

_log = own_logger()


@define
class OutboxDeletion:
    """Deletes old rows between the batches of a relay. Owner: the relay's thread."""

    _store: OutboxStore
    _keep_s: float
    """0: nothing is kept, so there is nothing to delete."""
    _sent: int = 0
    """How many rows had been sent at the last run."""
    _due_at: float = float("-inf")

    def run(self, connection: sa.Connection, sent: int) -> int:
        """Delete old rows if due, more than were sent since the last run; return how many.

        While old rows are left, the next run is due at once. A failed statement is logged.
        """
        now = time.monotonic()
        if not self._keep_s or now < self._due_at:
            return 0
        most, self._sent = MAX_DELETED + sent - self._sent, sent
        deleted = 0
        try:
            while deleted < most:
                with connection.begin():
                    self._store.dialect.limit_statements(connection)
                    found = self._store.clean(connection, self._keep_s, MAX_DELETED)
                deleted += found
                if found < MAX_DELETED:
                    self._due_at = now + _EVERY_S
                    break
        except DBAPIError as error:
            if error.connection_invalidated:
                raise
            self._due_at = now + _FAILED_S
            _log.warning(
                "outbox: cannot delete published rows, retrying in %g s: %s",
                _FAILED_S,
                str(error.orig).strip(),
                extra={"event": LogEvent.OUTBOX_NOT_CLEANED},
            )
        return deleted
