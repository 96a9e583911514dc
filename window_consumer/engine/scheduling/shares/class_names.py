"""The class of a record, read from its message."""

from __future__ import annotations

from collections.abc import Callable
from hashlib import sha256
from typing import Final

from attrs import frozen

from window_consumer.engine.scheduling.shares.share_classes import NameOf
from window_consumer.model.conditions.expressions import Property
from window_consumer.model.conditions.lookup import as_text
from window_consumer.model.conditions.tree import FieldValue, Header
from window_consumer.model.record import Message

MAX_NAME: Final = 200
"""The characters allowed in a class's name, which metrics and pages show."""

_KEPT: Final = MAX_NAME - 17


def name_of(by: Property) -> NameOf:
    """Return a function that reads a record's class. A copy has the class of its first delivery."""
    if isinstance(by, FieldValue):
        return _key if by.name == "key" else _topic
    if isinstance(by, Header):
        return _header(by.name)
    expression = by

    def holds(topic: str, message: Message) -> str:
        return "true" if expression.evaluate(_ClassLookup(topic, message)) else "false"

    return holds


def _key(_topic: str, message: Message) -> str | None:
    return _short(message.key())


def _topic(topic: str, _message: Message) -> str:
    return topic


def _header(name: str) -> Callable[[str, Message], str | None]:
    def value(_topic: str, message: Message) -> str | None:
        headers = message.headers()
        return _short(dict(headers).get(name)) if headers else None

    return value


def _short(value: bytes | None) -> str | None:
    name = as_text(value)
    return None if name is None else short(name)


def short(name: str) -> str:
    """Return a value as the name of a class; long ones keep their beginning and a hash."""
    if len(name) <= MAX_NAME:
        return name
    return f"{name[:_KEPT]}…{sha256(name.encode()).hexdigest()[:16]}"


@frozen
class _ClassLookup:
    """One message, for conditions that compare no times."""

    topic: str
    message: Message

    def field(self, name: str) -> str | None:
        """Return its key or its topic."""
        return as_text(self.message.key()) if name == "key" else self.topic

    def header(self, name: str) -> str | None:
        """Return the last value of a header as text."""
        return as_text(dict(self.message.headers() or ()).get(name))

    def now_ms(self) -> int:
        """Return nothing: no condition on classes compares times."""
        raise NotImplementedError  # there is no field to compare it with
