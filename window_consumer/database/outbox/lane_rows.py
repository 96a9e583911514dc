"""The next rows of a lane: its shards take turns, and a batch fits into memory."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import sqlalchemy as sa
from attrs import define, field

from window_consumer.database.outbox.row import OutboxRow, hash_of
from window_consumer.database.outbox.store import OutboxStore
from window_consumer.model.log_events import LogEvent
from window_consumer.runtime.log import own_logger

_BATCH_BYTES: Final = 16 * 1024 * 1024
_READ_AT_ONCE: Final = 500
"""How many rows of a shard are worth a separate statement, as long as there are more."""

_log = own_logger()


def report_shards(shards: int) -> None:
    """Report rows of writers with a different number of shards: key order is not guaranteed."""
    _log.error(
        "outbox: rows were written with a number of shards other than outbox.shards, which is %d:"
        " while writers differ, rows of a key may be sent out of order; give each Outbox() the"
        " same number",
        shards,
        extra={"event": LogEvent.OUTBOX_SHARDS_DIFFER},
    )


@define
class LaneRows:
    """Reads the rows of lanes, a batch at a time. Owner: the relay's thread."""

    _store: OutboxStore
    _most: int
    """The rows of a batch."""
    _row_bytes: float = field(default=0.0, init=False)
    """The mean size of the rows that were read last."""
    _last_read: dict[int, int] = field(factory=dict, init=False)
    """The shard of each lane that was read last: the next batch begins behind it."""
    _shards_differ: bool = field(default=False, init=False)

    def first(self, connection: sa.Connection, shard: int, held: set[str]) -> OutboxRow | None:
        """Return the first due row of a shard; it counts as not read."""
        rows = self._store.rows(connection, shard, 1, held)
        return rows[0] if rows else None

    def read(
        self, connection: sa.Connection, lane: int, shards: Sequence[int], held: set[str]
    ) -> list[OutboxRow]:
        """Return the next due rows of a lane, without those of the topics ``held``."""
        limit = self._limit()
        each = max(_READ_AT_ONCE, limit // len(shards))
        last = self._last_read.get(lane, -1)
        rows: list[OutboxRow] = []
        for shard in sorted(shards, key=lambda shard: (shard <= last, shard)):
            found = self._store.rows(connection, shard, min(each, limit - len(rows)), held)
            if found:
                self._check_shard(found[0], shard)
                rows += found
                self._last_read[lane] = shard
            if len(rows) >= limit:
                break
        if rows:
            self._row_bytes = sum(row.size for row in rows) / len(rows)
        return rows

    def _limit(self) -> int:
        """Return how many rows to read, so that large ones do not exhaust memory."""
        fitting = _BATCH_BYTES / max(self._row_bytes, 1.0)
        return max(1, min(self._most, int(fitting)))

    def _check_shard(self, row: OutboxRow, shard: int) -> None:
        """Report, once, a writer with a different number of shards; one row per batch shows it."""
        shards = self._store.outbox.shards
        if row.fault is not None:
            return
        is_other = hash_of(row.topic, row.key, row.id) % shards != shard
        if is_other and not self._shards_differ:
            self._shards_differ = True
            report_shards(shards)
