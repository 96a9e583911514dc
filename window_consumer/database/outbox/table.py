"""The table of the outbox, and how rows get into it: ``Outbox``.

Columns are those that Debezium's outbox router expects, and those that the relay needs.
"""

from __future__ import annotations

import base64
import uuid
import zlib
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, Final, NamedTuple

import sqlalchemy as sa
from sqlalchemy.orm import Session

from window_consumer.config.units import UnitError, parse_duration
from window_consumer.database.dialects import dialect_of
from window_consumer.database.outbox.wake import wake_after_commit
from window_consumer.model import headers as names
from window_consumer.model.errors import UsageError
from window_consumer.model.produce import Bytes, HeaderPairs, Produce

WAITING: Final = "waiting"
BLOCKED: Final = "blocked"
"""Refused by Kafka; later rows of its key wait."""
FAILED: Final = "failed"
"""Refused by Kafka and given up; later rows of its key go on."""

UNPUBLISHED: Final = "published_at IS NULL AND status <> 'failed'"
REFUSED: Final = "status <> 'waiting' AND published_at IS NULL"
MOST_SHARDS: Final = 1024
_MAX_TYPE: Final = 255

Delay = str | float | timedelta


class OutboxRow(NamedTuple):
    """A row that is due, as the relay sends it; a tuple as there are many."""

    id: uuid.UUID
    topic: str
    key: bytes | None
    payload: bytes | None
    headers: list[tuple[str, bytes | None]]
    partition: int | None
    timestamp: int | None

    @property
    def lane(self) -> tuple[str, bytes] | None:
        """What is kept in order: the topic's key; None for a row without key."""
        return None if self.key is None else (self.topic, self.key)

    @property
    def size(self) -> int:
        """Bytes of key and payload."""
        return len(self.key or b"") + len(self.payload or b"")


class Outbox:
    """A table in ``metadata`` whose committed rows become records. Any thread may call.

    ``table`` may name a schema: ``events.wc_outbox``. Rows of a key stay in order, as a key's rows
    are in one of ``shards`` (1 to 1,024), which relays share; change that number only while the
    table is empty. With ``notify`` PostgreSQL wakes relays of other processes at each commit, if
    they have ``outbox.notify: true``; SQLite cannot.
    """

    def __init__(
        self,
        metadata: sa.MetaData,
        table: str = "wc_outbox",
        shards: int = 64,
        *,
        notify: bool = False,
    ):
        if not 1 <= shards <= MOST_SHARDS:
            raise UsageError(f"Outbox: shards has to be 1 to {MOST_SHARDS}, not {shards}")
        self.shards = shards
        self.notify = notify
        self.table = _table(metadata, table)
        self.channel = f"wc-outbox-{zlib.crc32(self.table.fullname.encode()):08x}"
        """What ``notify`` calls: a table's name may be too long for a channel."""

    def add(  # noqa: PLR0913 - a record has that many parts
        self,
        session_or_connection: Session | sa.Connection,
        topic: str,
        key: Bytes = None,
        value: Bytes = None,
        *,
        headers: HeaderPairs = (),
        partition: int | None = None,
        timestamp: int | None = None,
        delay: Delay | None = None,
        deliver_at: datetime | None = None,
        type: str | None = None,  # noqa: A002 - the column's name
        id: uuid.UUID | str | None = None,  # noqa: A002 - the column's name
    ) -> uuid.UUID:
        """Add a record to the transaction; return its id, which becomes its ``wc-id``.

        It is sent after the commit. ``delay`` ("30m", a timedelta, seconds) or ``deliver_at`` (with
        a time zone) send it later; it does not hold up later records of its key then. Raises
        TypeError and ValueError as Produce does.
        """
        produce = Produce(
            topic, key, value, headers=headers, partition=partition, timestamp=timestamp
        )
        row = self.row(produce, id=id, type=type, available_at=available_at(delay, deliver_at))
        self.insert(session_or_connection, [row])
        found: uuid.UUID = row["id"]
        return found

    async def add_async(self, session_or_connection: Any, *given: Any, **more: Any) -> uuid.UUID:
        """Add a record to the transaction of an AsyncSession or AsyncConnection, as ``add``."""
        found: uuid.UUID = await session_or_connection.run_sync(
            lambda sync: self.add(sync, *given, **more)
        )
        return found

    def row(
        self,
        produce: Produce,
        *,
        id: uuid.UUID | str | None = None,  # noqa: A002 - the column's name
        type: str | None = None,  # noqa: A002 - the column's name
        available_at: datetime | None = None,
    ) -> dict[str, Any]:
        """Return the values of a row for ``insert``."""
        if type is not None and ("\x00" in type or len(type) > _MAX_TYPE):
            raise ValueError(f"Outbox: type has to be up to {_MAX_TYPE} characters without NUL")
        row_id = id if isinstance(id, uuid.UUID) else uuid.uuid4() if id is None else uuid.UUID(id)
        return {
            "id": row_id,
            "aggregatetype": produce.topic,
            "aggregateid": _text_of(produce.key),
            "type": type or "",
            "payload": produce.value,
            "topic": produce.topic,
            "key": produce.key,
            "headers": _json_of(produce.headers) or None,
            "partition": produce.partition,
            "timestamp": produce.timestamp,
            "shard": hash_of(produce.topic, produce.key, row_id) % self.shards,
            "available_at": available_at,
        }

    def rows(
        self, produces: Iterable[Produce], ids: Iterable[uuid.UUID | None] | None = None
    ) -> list[dict[str, Any]]:
        """Return the values of many rows for ``insert``, with ids of one's own if given."""
        given = list(produces)
        own = [None] * len(given) if ids is None else list(ids)
        return [self.row(each, id=row_id) for each, row_id in zip(given, own, strict=True)]

    def insert(
        self,
        session_or_connection: Session | sa.Connection,
        rows: Sequence[Mapping[str, Any]],
    ) -> None:
        """Insert rows that ``row`` or ``rows`` made, in their order, into the transaction."""
        if not rows:
            return
        connection = (
            session_or_connection.connection()
            if isinstance(session_or_connection, Session)
            else session_or_connection
        )
        dialect = dialect_of(connection.dialect.name)
        statement = sa.insert(self.table)
        seq = dialect.next_seq(self.table)
        if seq is None:
            connection.execute(statement, list(rows))
        else:
            numbered = [{**row, "of_shard": row["shard"]} for row in rows]
            connection.execute(statement.values(seq=seq), numbered)
        if self.notify:
            dialect.notify(connection, self.channel)
        wake_after_commit(session_or_connection, self.table.fullname)


def _table(metadata: sa.MetaData, name: str) -> sa.Table:
    schema, _, plain = name.rpartition(".")
    unpublished, refused = sa.text(UNPUBLISHED), sa.text(REFUSED)
    waiting: dict[str, Any] = {"postgresql_where": unpublished, "sqlite_where": unpublished}
    return sa.Table(
        plain,
        metadata,
        sa.Column("id", sa.Uuid(), primary_key=True),
        sa.Column("aggregatetype", sa.String(_MAX_TYPE), nullable=False),
        sa.Column("aggregateid", sa.Text(), nullable=False),
        sa.Column("type", sa.String(_MAX_TYPE), nullable=False),
        sa.Column("payload", sa.LargeBinary()),
        sa.Column("topic", sa.String(_MAX_TYPE), nullable=False),
        sa.Column("key", sa.LargeBinary()),
        sa.Column("headers", sa.JSON(none_as_null=True)),
        sa.Column("partition", sa.Integer()),
        sa.Column("timestamp", sa.BigInteger()),
        sa.Column("seq", sa.BigInteger(), sa.Identity(), nullable=False),
        sa.Column("shard", sa.Integer(), nullable=False),
        sa.Column(
            "created_at",
            sa.DateTime(timezone=True),
            nullable=False,
            server_default=sa.func.current_timestamp(),
        ),
        sa.Column("available_at", sa.DateTime(timezone=True)),
        sa.Column("attempts", sa.Integer(), nullable=False, server_default=sa.text("0")),
        sa.Column("last_error", sa.Text()),
        sa.Column("status", sa.String(8), nullable=False, server_default=sa.text("'waiting'")),
        sa.Column("published_at", sa.DateTime(timezone=True)),
        sa.Index(f"ix_{plain}_order", "shard", "seq", **waiting),
        sa.Index(f"ix_{plain}_due", "shard", "available_at", **waiting),
        sa.Index(
            f"ix_{plain}_refused", "shard", "seq", postgresql_where=refused, sqlite_where=refused
        ),
        schema=schema or None,
    )


def hash_of(topic: str, key: bytes | None, row_id: uuid.UUID) -> int:
    """Return what decides about a row's shard: all rows of a key have the same."""
    return zlib.crc32(topic.encode() + b"\x00" + (row_id.bytes if key is None else key))


def available_at(delay: Delay | None, deliver_at: datetime | None) -> datetime | None:
    """Return when a row may be sent, in UTC; None at once. Raises TypeError and ValueError."""
    if deliver_at is not None:
        if delay is not None:
            raise ValueError("Outbox: delay and deliver_at exclude each other")
        if deliver_at.tzinfo is None:
            raise ValueError("Outbox: deliver_at needs a time zone")
        return deliver_at.astimezone(UTC)
    if delay is None:
        return None
    try:
        wait = parse_duration(delay) if isinstance(delay, str) else delay
    except UnitError as error:
        raise ValueError(f"Outbox: delay {delay!r} {error}") from None
    wait = wait if isinstance(wait, timedelta) else timedelta(seconds=wait)
    if wait < timedelta(0):
        raise ValueError(f"Outbox: delay may not be negative: {delay!r}")
    return datetime.now(UTC) + wait


def _text_of(key: bytes | None) -> str:
    return (key or b"").decode("utf-8", "backslashreplace").replace("\x00", "\\x00")


def _json_of(pairs: Iterable[tuple[str, bytes | None]]) -> list[list[Any]]:
    return [[name, _json_value(value)] for name, value in pairs if name != names.ID]


def _json_value(value: bytes | None) -> Any:
    if value is None:
        return None
    try:
        return value.decode()
    except UnicodeDecodeError:
        return {"base64": base64.b64encode(value).decode()}


def headers_of(row_id: uuid.UUID, stored: Any) -> list[tuple[str, bytes | None]]:
    """Return a record's headers: those that the row holds, and its id as ``wc-id``."""
    record_id = (names.ID, str(row_id).encode())
    if not stored:
        return [record_id]
    return [*((name, _bytes_of(value)) for name, value in stored), record_id]


def _bytes_of(stored: Any) -> bytes | None:
    if isinstance(stored, dict):
        return base64.b64decode(stored["base64"])
    return None if stored is None else str(stored).encode()
