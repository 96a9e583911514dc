"""Conditions on the records of a replay: what ``--where`` accepts (see ``expressions``)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

from attrs import frozen

from window_consumer.model.conditions.expressions import Expression, FieldKind, parse
from window_consumer.model.conditions.lookup import as_text
from window_consumer.model.record import TIMESTAMP_NOT_AVAILABLE, Message
from window_consumer.model.record_identity import RecordOrigin, given_id, id_text

Value = str | int | None


def _id(message: Message) -> str:
    given = given_id(message.headers())
    if given is not None:
        return id_text(given)
    return str(RecordOrigin(message.topic(), message.partition(), message.offset()))


def _timestamp(message: Message) -> int | None:
    kind, milliseconds = message.timestamp()
    return None if kind == TIMESTAMP_NOT_AVAILABLE else milliseconds


_FIELDS: Final[Mapping[str, tuple[FieldKind, Callable[[Message], Value]]]] = {
    "id": (FieldKind.TEXT, _id),
    "key": (FieldKind.TEXT, lambda message: as_text(message.key())),
    "timestamp": (FieldKind.TIME, _timestamp),
    "topic": (FieldKind.TEXT, lambda message: message.topic()),
    "partition": (FieldKind.NUMBER, lambda message: message.partition()),
    "offset": (FieldKind.NUMBER, lambda message: message.offset()),
}


@frozen
class _MessageLookup:
    """One record, for expressions."""

    message: Message
    wall_ms: int

    def field(self, name: str) -> Value:
        return _FIELDS[name][1](self.message)

    def header(self, name: str) -> str | None:
        return as_text(dict(self.message.headers() or ()).get(name))

    def now_ms(self) -> int:
        return self.wall_ms


def parse_where(text: str) -> Expression:
    """Parse a condition on records; raises ExpressionError with the position of the mistake."""
    return parse(text, {name: kind for name, (kind, _) in _FIELDS.items()})


def holds(where: Expression, message: Message, now_ms: int) -> bool:
    """Return whether a record fulfils a condition."""
    return where.evaluate(_MessageLookup(message, now_ms))
