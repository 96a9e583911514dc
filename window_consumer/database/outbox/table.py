"""The table of the outbox, and ``Outbox``, which adds rows to it.

It has the columns that Debezium's outbox event router expects, and those that the relay needs.
"""

from __future__ import annotations

import uuid
import zlib
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any, Final

import sqlalchemy as sa
from sqlalchemy.orm import Session, scoped_session

from window_consumer.database.connection import connection_of, unscoped
from window_consumer.database.dialects import dialect_of
from window_consumer.database.outbox.row import (
    available_at,
    hash_of,
    stored_headers,
    text_of,
    ttl_s,
    with_parent,
)
from window_consumer.database.outbox.wakeup import wake_after_commit
from window_consumer.model.durations import Delay
from window_consumer.model.errors import UsageError
from window_consumer.model.produce import (
    DELAY_TOPIC,
    Bytes,
    HeaderPairs,
    Produce,
    Serializer,
    Tags,
    cancellation,
    checked_delay_topic,
    with_wishes,
)

WAITING: Final = "waiting"
BLOCKED: Final = "blocked"
"""Refused by Kafka; later rows of its key wait."""
FAILED: Final = "failed"
"""Refused by Kafka and given up; later rows of its key are sent."""

UNPUBLISHED: Final = "published_at IS NULL AND status <> 'failed'"
PUBLISHED: Final = "published_at IS NOT NULL"
REFUSED: Final = "status <> 'waiting' AND published_at IS NULL"
MOST_SHARDS: Final = 1024
ADDED: Final = "wc_outbox_produces"
"""The key in ``session.info`` of an optional list to which ``add`` appends its rows."""
_MAX_TYPE: Final = 255

AnySession = Session | scoped_session[Any]


class Outbox:
    """A table in ``metadata`` whose committed rows become records. Any thread may call.

    ``table`` may include a schema: ``events.wc_outbox``. Rows of a key stay in order, as all are in
    one of ``shards`` (1 to 1,024), which relays divide among themselves; change that number only
    while the table is empty. With ``notify`` PostgreSQL wakes relays of other processes at each
    commit, if they have ``outbox.notify: true``; SQLite cannot. ``delay_topic`` is the
    ``delay.topic`` of the service in which ``cancel`` cancels sent rows.
    """

    def __init__(
        self,
        metadata: sa.MetaData,
        table: str = "wc_outbox",
        shards: int = 64,
        *,
        notify: bool = False,
        delay_topic: str = DELAY_TOPIC,
    ):
        if not 1 <= shards <= MOST_SHARDS:
            raise UsageError(f"Outbox: shards must be 1 to {MOST_SHARDS}, not {shards}")
        self.shards = shards
        self.notify = notify
        self.delay_topic = checked_delay_topic(delay_topic)
        self.table = _table(metadata, table)
        self.channel = f"wc-outbox-{zlib.crc32(self.table.fullname.encode()):08x}"
        """The channel of ``notify``; a table's name may be too long for one."""

    def add(  # noqa: PLR0913 - a record has that many parts
        self,
        session_or_connection: AnySession | sa.Connection,
        topic: str,
        key: Bytes = None,
        value: Any = None,
        *,
        headers: HeaderPairs = (),
        partition: int | None = None,
        timestamp: int | None = None,
        serialize: Serializer | None = None,
        ttl: str | float | None = None,
        tags: Tags = "",
        delay: Delay | None = None,
        deliver_at: datetime | None = None,
        type: str | None = None,  # noqa: A002 - the column's name
        id: uuid.UUID | str | None = None,  # noqa: A002 - the column's name
    ) -> uuid.UUID:
        """Add a record to the transaction; return its id, which becomes its ``wc-id``.

        The session may be a scoped one, such as ``db.session`` of Flask-SQLAlchemy, and may have
        binds: the table's engine is used. The record is sent after the commit. ``delay`` ("30m", a
        timedelta, seconds) or ``deliver_at`` (with a time zone) delays it; it then does not hold up
        later records of its key. ``serialize`` converts the value to bytes; ``ttl`` and ``tags``
        become headers as in ``Producer.send``. Within an OpenTelemetry span it gets a
        ``traceparent``. Raises TypeError and ValueError like Produce, and ValueError for an invalid
        ``ttl``.
        """
        produce = Produce(
            topic,
            key,
            value if serialize is None or value is None else serialize(value),
            headers=with_wishes(headers, ttl_s(ttl), tags),
            partition=partition,
            timestamp=timestamp,
        )
        row = self.row(produce, id=id, type=type, available_at=available_at(delay, deliver_at))
        target = unscoped(session_or_connection)
        self.insert(target, [row])
        added: list[Produce] | None = target.info.get(ADDED)
        if added is not None:
            added.append(produce)
        found: uuid.UUID = row["id"]
        return found

    async def add_async(self, session_or_connection: Any, *given: Any, **more: Any) -> uuid.UUID:
        """Add a record to the transaction of an AsyncSession or AsyncConnection, like ``add``."""
        found: uuid.UUID = await unscoped(session_or_connection).run_sync(
            lambda sync: self.add(sync, *given, **more)
        )
        return found

    def cancel(
        self,
        session_or_connection: AnySession | sa.Connection,
        id: uuid.UUID | str,  # noqa: A002 - the column's name
        deliver_at: datetime | None = None,
    ) -> bool:
        """Cancel a record in the transaction; return whether its row was still there.

        An unsent row is deleted. If the relay has sent it, or may be sending it, to the delay
        service, a new row cancels it there, as ``Producer.cancel`` does; this needs the topic of
        cancellations, by default ``wc.delay.cancel``. Raises ValueError for an invalid id.
        """
        try:
            row_id = id if isinstance(id, uuid.UUID) else uuid.UUID(id)
        except ValueError:
            row_id = None  # the id of a record that did not come from this table
        record = cancellation(str(row_id or id), deliver_at, topic=self.delay_topic)
        target = unscoped(session_or_connection)
        topic = None if row_id is None else self._delete(target, row_id)
        if topic in {None, self.delay_topic}:
            self.insert(target, [self.row(record)])
        return topic is not None

    async def cancel_async(
        self,
        session_or_connection: Any,
        id: uuid.UUID | str,  # noqa: A002 - the column's name
        deliver_at: datetime | None = None,
    ) -> bool:
        """Cancel in the transaction of an AsyncSession or AsyncConnection, like ``cancel``."""
        found: bool = await unscoped(session_or_connection).run_sync(
            lambda sync: self.cancel(sync, id, deliver_at)
        )
        return found

    def _delete(self, target: Any, row_id: uuid.UUID) -> str | None:
        """Delete an unsent row; return its topic, or None if there is no such row."""
        row = self.table.c
        unsent = sa.and_(row.id == row_id, row.published_at.is_(None))
        statement = self.table.delete().where(unsent).returning(row.topic)
        topic: str | None = connection_of(target, self.table).execute(statement).scalar()
        return topic

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
            raise ValueError(f"Outbox: type must have at most {_MAX_TYPE} characters and no NUL")
        row_id = id if isinstance(id, uuid.UUID) else uuid.uuid4() if id is None else uuid.UUID(id)
        return {
            "id": row_id,
            "aggregatetype": produce.topic,
            "aggregateid": text_of(produce.key),
            "type": type or "",
            "payload": produce.value,
            "topic": produce.topic,
            "key": produce.key,
            "headers": stored_headers(with_parent(produce.headers)) or None,
            "partition": produce.partition,
            "timestamp": produce.timestamp,
            "shard": hash_of(produce.topic, produce.key, row_id) % self.shards,
            "available_at": available_at,
        }

    def rows(
        self, produces: Iterable[Produce], ids: Iterable[uuid.UUID | None] | None = None
    ) -> list[dict[str, Any]]:
        """Return the values of many rows for ``insert``, with the given ids if any."""
        given = list(produces)
        own = [None] * len(given) if ids is None else list(ids)
        return [self.row(each, id=row_id) for each, row_id in zip(given, own, strict=True)]

    def insert(
        self,
        session_or_connection: AnySession | sa.Connection,
        rows: Sequence[Mapping[str, Any]],
        *,
        replace: bool = False,
    ) -> None:
        """Insert rows from ``row`` or ``rows`` into the transaction, in order.

        With ``replace``, a row replaces one with the same id and is sent again.
        """
        if not rows:
            return
        target = unscoped(session_or_connection)
        connection = connection_of(target, self.table)
        dialect = dialect_of(connection.dialect.name)
        insert = dialect.insert(self.table)
        statement = _replacing(insert, self.table) if replace else insert
        seq = dialect.next_seq(self.table)
        if seq is None:
            connection.execute(statement, list(rows))
        else:
            numbered = [{**row, "of_shard": row["shard"]} for row in rows]
            connection.execute(statement.values(seq=seq), numbered)
        if self.notify:
            dialect.notify(connection, self.channel)
        wake_after_commit(target, self.table.fullname)


def _replacing(statement: Any, table: sa.Table) -> Any:
    """Return an INSERT that replaces rows with the same ids."""
    new = {each.name: statement.excluded[each.name] for each in table.c if not each.primary_key}
    return statement.on_conflict_do_update(index_elements=list(table.primary_key), set_=new)


def _table(metadata: sa.MetaData, name: str) -> sa.Table:
    schema, _, plain = name.rpartition(".")
    unpublished, refused = sa.text(UNPUBLISHED), sa.text(REFUSED)
    published = sa.text(PUBLISHED)
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
        sa.Index(
            f"ix_{plain}_published",
            "published_at",
            postgresql_where=published,
            sqlite_where=published,
        ),
        schema=schema or None,
    )
