"""The models of the outbox and of ``once``; their tables are those of ``Outbox`` and ``Once``."""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from datetime import datetime
from typing import Any, ClassVar, Final, TypedDict, Unpack

import sqlalchemy as sa
from django.db import models, router
from django.db.models.expressions import RawSQL
from django.db.models.functions import Now

from window_consumer.database.django.borrowed import borrowed, wake_on_commit
from window_consumer.database.django.fields import (
    BlockRangeIndex,
    BytewiseTextField,
    HeadersField,
    SequenceField,
)
from window_consumer.database.outbox.table import PUBLISHED, REFUSED, UNPUBLISHED, WAITING, Outbox
from window_consumer.model.durations import Delay
from window_consumer.model.errors import UsageError
from window_consumer.model.produce import Bytes, HeaderPairs, Serializer, Tags

_LONGEST_TABLE: Final = 17
"""Django allows 30 characters in the name of an index, such as ix_TABLE_published."""


class RecordParts(TypedDict, total=False):
    """The optional parts of an outbox record besides topic, key and value; see ``Outbox.add``."""

    headers: HeaderPairs
    partition: int | None
    timestamp: int | None
    serialize: Serializer | None
    ttl: str | float | None
    tags: Tags
    delay: Delay | None
    deliver_at: datetime | None
    type: str | None
    id: uuid.UUID | str | None


class OutboxModel:
    """A row of the outbox: the methods that ``outbox_model`` adds. Any thread may call them."""

    rows: ClassVar[Outbox]
    objects: ClassVar[Any]

    @classmethod
    def add(
        cls,
        topic: str,
        key: Bytes = None,
        value: Any = None,
        *,
        using: str | None = None,
        **parts: Unpack[RecordParts],
    ) -> uuid.UUID:
        """Add a record to the transaction; return its id, which becomes its ``wc-id``.

        The record is sent after the commit. ``using`` is the alias of the database, by default the
        one that Django's routers choose for the model. The other parts are those of
        ``window_consumer.database.Outbox.add``. Raises UsageError outside ``transaction.atomic()``,
        and the errors of ``Outbox.add``.
        """
        alias = using or router.db_for_write(cls)
        with borrowed(alias, f"{cls.__name__}.add") as connection:
            row_id = cls.rows.add(connection, topic, key, value, **parts)
        wake_on_commit(alias, cls.rows.table.fullname)
        return row_id

    @classmethod
    def cancel(
        cls,
        id: uuid.UUID | str,  # noqa: A002 - the column's name
        deliver_at: datetime | None = None,
        *,
        using: str | None = None,
    ) -> bool:
        """Cancel a record in the transaction; return whether its row was still there.

        See ``window_consumer.database.Outbox.cancel``. Raises UsageError outside
        ``transaction.atomic()``.
        """
        alias = using or router.db_for_write(cls)
        with borrowed(alias, f"{cls.__name__}.cancel") as connection:
            was_there = cls.rows.cancel(connection, id, deliver_at)
        wake_on_commit(alias, cls.rows.table.fullname)
        return was_there


class OnceModel:
    """The id of a finished record: the base of the model that ``once_model`` returns."""

    objects: ClassVar[Any]


def outbox_model(
    module: str,
    name: str = "Outbox",
    *,
    table: str = "wc_outbox",
    shards: int = 64,
    notify: bool = False,
) -> type[OutboxModel]:
    """Return a model for the outbox; call it in ``models.py`` with ``__name__``.

    The module must assign it to ``name``, its class name: ``Outbox = outbox_model(__name__)``. Its
    ``add`` writes rows, ``objects`` reads them. ``table``, ``shards`` and ``notify`` are those of
    ``window_consumer.database.Outbox``. Raises UsageError if the table's name is too long or has a
    schema.
    """
    if "." in table or len(table) > _LONGEST_TABLE:
        raise UsageError(
            f"outbox_model: the name {table!r} must have at most {_LONGEST_TABLE} characters and no"
            " schema"
        )
    indexes = [
        _index(table, "order", ["shard", "seq"], UNPUBLISHED),
        _index(table, "due", ["shard", "available_at"], UNPUBLISHED),
        _index(table, "refused", ["shard", "seq"], REFUSED),
        _index(table, "published", ["published_at"], PUBLISHED),
    ]
    columns = {
        "id": models.UUIDField(primary_key=True, default=uuid.uuid4, editable=False),
        "aggregatetype": models.CharField(max_length=255),
        "aggregateid": models.TextField(),
        "type": models.CharField(max_length=255),
        "payload": models.BinaryField(null=True),
        "topic": models.CharField(max_length=255),
        "key": models.BinaryField(null=True),
        "headers": HeadersField(null=True),
        "partition": models.IntegerField(null=True),
        "timestamp": models.BigIntegerField(null=True),
        "seq": SequenceField(editable=False),
        "shard": models.IntegerField(),
        "created_at": models.DateTimeField(db_default=Now()),
        "available_at": models.DateTimeField(null=True),
        "attempts": models.IntegerField(db_default=0),
        "last_error": models.TextField(null=True),
        "status": models.CharField(max_length=8, db_default=WAITING),
        "published_at": models.DateTimeField(null=True),
    }
    rows = Outbox(sa.MetaData(), table, shards, notify=notify)
    more = {"rows": rows, "__doc__": "A record that the relay sends to Kafka."}
    model: type[OutboxModel] = _model(
        module, name, OutboxModel, table, indexes, {**columns, **more}
    )
    return model


def once_model(module: str, name: str = "Once", *, table: str = "wc_once") -> type[OnceModel]:
    """Return a model for the ids of finished records; call it in ``models.py`` with ``__name__``.

    The module must assign it to ``name``, its class name.
    """
    keys = ("group_name", "worker", "origin", "record_id")
    columns = {
        "pk": models.CompositePrimaryKey(*keys),
        **{key: BytewiseTextField() for key in keys},
        "done_at": models.DateTimeField(db_default=Now()),
    }
    indexes = [BlockRangeIndex(fields=["done_at"], name=f"ix_{table}_done_at"[:30])]
    more = {"__doc__": "The id of a record whose changes are in the database."}
    model: type[OnceModel] = _model(module, name, OnceModel, table, indexes, {**columns, **more})
    return model


def _index(table: str, what: str, fields: list[str], condition: str) -> models.Index:
    # As text: SQLite uses a partial index only if the condition of a query matches it literally.
    where = models.Q(RawSQL(condition, (), output_field=models.BooleanField()))  # noqa: S611 - our text
    return models.Index(fields=fields, name=f"ix_{table}_{what}", condition=where)


def _model(
    module: str,
    name: str,
    methods: type[Any],
    table: str,
    indexes: list[models.Index],
    attributes: Mapping[str, Any],
) -> Any:
    meta = type("Meta", (), {"db_table": table, "indexes": indexes})
    return type(
        name,
        (methods, models.Model),
        {**attributes, "Meta": meta, "__module__": module, "__qualname__": name},
    )
