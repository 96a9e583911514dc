"""A dead letter: a record that somebody gave up, and what its headers tell about that.

Ours are read here (docs/wire.md has the headers), those of other frameworks by the rules in
``foreign_dead_letters``. Nothing raises: what is missing or cannot be read comes out as None.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import NamedTuple

from attrs import frozen

from window_consumer.dlq.foreign import (
    FORMATS,
    Fields,
    ForeignFormat,
)
from window_consumer.model import headers as names
from window_consumer.model.header_values import (
    count,
    text,
)
from window_consumer.model.protocols import Headers
from window_consumer.model.record import (
    TIMESTAMP_NOT_AVAILABLE,
    Message,
)
from window_consumer.model.record_identity import (
    given_id,
    id_text,
)


class Position(NamedTuple):
    """Where a dead letter itself stands; its text, ``topic/partition/offset``, finds it again."""

    topic: str
    partition: int
    offset: int

    def __str__(self) -> str:
        return f"{self.topic}/{self.partition}/{self.offset}"


class WrittenBy(StrEnum):
    """Who wrote a dead letter, as far as its headers tell."""

    WINDOW_CONSUMER = "window-consumer"
    SPRING = "spring"
    KAFKA_CONNECT = "kafka-connect"
    KAFKA_STREAMS = "kafka-streams"
    SHARE_GROUP = "share-group"
    KPIPE = "kpipe"
    UNKNOWN = "unknown"


@frozen(kw_only=True)
class DeadLetter:
    """A record of a dead-letter topic and what is known about it; None is unknown.

    Times are milliseconds since 1970.
    """

    position: Position
    written_by: WrittenBy
    id: str
    """``wc-id``; else where the record stood at first, else where the dead letter stands."""
    key: bytes | None
    value: bytes | None
    """The record's value; None also where ``value_ref`` stands for it."""
    headers: Headers
    """All headers, in their order."""
    own_headers: Headers
    """Those that the record had before it failed, in their order."""
    timestamp: int | None
    """When the dead letter was written."""
    original_topic: str | None = None
    original_partition: int | None = None
    original_offset: int | None = None
    original_timestamp: int | None = None
    group: str | None = None
    handler: str | None = None
    """The handler; of Kafka Connect the connector and its task."""
    app_version: str | None = None
    host: str | None = None
    """The host whose worker gave it up; of a pod its name."""
    reason: str | None = None
    """One of ``headers.Reason``; a later version may write further ones."""
    error_class: str | None = None
    error_message: str | None = None
    error_stack: str | None = None
    fingerprint: str | None = None
    """Equal for errors of one class from one place; computed where the headers have none."""
    attempts: int | None = None
    level: str | None = None
    first_failure: int | None = None
    last_failure: int | None = None
    redrives: int = 0
    """How often it was put back by hand."""
    value_ref: str | None = None
    """Where the value is that was too large: ``topic/partition/offset sha256:hex``."""

    @property
    def failed_at(self) -> int | None:
        """When it failed for the last time, as far as that is known; its age counts from here."""
        return self.last_failure if self.last_failure is not None else self.timestamp

    @property
    def original(self) -> Position | None:
        """Where the record was delivered first, None where that is not known completely."""
        topic, partition, offset = (
            self.original_topic,
            self.original_partition,
            self.original_offset,
        )
        if topic is None or partition is None or offset is None:
            return None
        return Position(topic, partition, offset)

    @property
    def may_be_pointer(self) -> bool:
        """Whether it may only say where the record stood.

        Share groups copy key and value where ``errors.deadletterqueue.copy.record.enable`` is set.
        """
        empty = self.key is None and self.value is None
        return empty and self.written_by is WrittenBy.SHARE_GROUP and self.original is not None


def read_dead_letter(message: Message) -> DeadLetter:
    """Return what a record of any dead-letter topic says of itself.

    Several frameworks may have had the record one after the other: the one that wrote its headers
    last is believed. A record that nobody marked comes out with everything unknown.
    """
    position = Position(message.topic(), message.partition(), message.offset())
    headers: Headers = message.headers() or []
    kind, milliseconds = message.timestamp()
    foreign = _last_writer(headers)
    if foreign is None:
        writer = WrittenBy.UNKNOWN
        fields: Fields = {}
        own = headers
    elif isinstance(foreign, ForeignFormat):
        writer = WrittenBy(foreign.name)
        fields = foreign.read(headers)
        own = [pair for pair in headers if not foreign.is_of_it(pair[0])]
    else:
        writer = WrittenBy.WINDOW_CONSUMER
        fields = _ours(dict(headers))
        own = _own(headers, fields)
    return DeadLetter(
        position=position,
        written_by=writer,
        key=message.key(),
        value=message.value(),
        headers=headers,
        own_headers=own,
        timestamp=None if kind == TIMESTAMP_NOT_AVAILABLE else milliseconds,
        **{"id": _id_of(fields, headers, position), **fields},
    )


_OURS = "ours"
_PRODUCERS = names.KEPT_ON_FOREIGN_TOPICS - {names.ID, names.REDRIVES}


def _last_writer(headers: Headers) -> ForeignFormat | str | None:
    """Return who wrote the last of the headers that tell who wrote them."""
    for name, _ in reversed(headers):
        if name == names.FORMAT:
            return _OURS
        found = FORMATS.get(name)
        if found is not None:
            return found
    return None


def _ours(headers: Mapping[str, bytes | None]) -> Fields:
    fields: Fields = {
        "original_topic": text(headers.get(names.ORIGINAL_TOPIC)),
        "original_partition": count(headers.get(names.ORIGINAL_PARTITION)),
        "original_offset": count(headers.get(names.ORIGINAL_OFFSET)),
        "original_timestamp": count(headers.get(names.ORIGINAL_TIMESTAMP)),
        "group": text(headers.get(names.GROUP)),
        "handler": text(headers.get(names.HANDLER)),
        "app_version": text(headers.get(names.APP_VERSION)),
        "host": text(headers.get(names.HOST)),
        "reason": text(headers.get(names.REASON)),
        "error_class": text(headers.get(names.ERROR_CLASS)),
        "error_message": text(headers.get(names.ERROR_MESSAGE)),
        "error_stack": text(headers.get(names.ERROR_STACK)),
        "fingerprint": text(headers.get(names.ERROR_FINGERPRINT)),
        "attempts": count(headers.get(names.ATTEMPTS)),
        "level": text(headers.get(names.LEVEL)),
        "first_failure": count(headers.get(names.FIRST_FAILURE)),
        "last_failure": count(headers.get(names.LAST_FAILURE)),
        "redrives": count(headers.get(names.REDRIVES)) or 0,
        "value_ref": text(headers.get(names.VALUE_REF)),
    }
    return fields


def _own(headers: Headers, fields: Fields) -> Headers:
    """Return the record's own headers: all that are not ours, and what producers may set.

    An id that is not made of the record's place was the producer's.
    """
    place = _place_of(fields)
    return [
        (name, value)
        for name, value in headers
        if not name.startswith(names.PREFIX)
        or name in _PRODUCERS
        or (name == names.ID and text(value) not in {None, place})
    ]


def _id_of(fields: Fields, headers: Headers, position: Position) -> str:
    given = given_id(headers)
    return (_place_of(fields) or str(position)) if given is None else id_text(given)


def _place_of(fields: Fields) -> str | None:
    parts = [fields.get(f"original_{part}") for part in ("topic", "partition", "offset")]
    return None if None in parts else "/".join(map(str, parts))
