"""A dead letter: a record that could not be handled, and the metadata in its headers.

Our headers (see docs/wire.md) are parsed here, those of other frameworks by the rules in
``foreign``. Nothing raises: a missing or unreadable field is None.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import NamedTuple

from attrs import frozen

from window_consumer.dlq.foreign import FORMATS, Fields, ForeignFormat
from window_consumer.model import headers as names
from window_consumer.model.header_values import count, text
from window_consumer.model.protocols import Headers
from window_consumer.model.record import TIMESTAMP_NOT_AVAILABLE, Message
from window_consumer.model.record_identity import given_id, id_text


class Position(NamedTuple):
    """The position of the dead letter itself; its text is ``topic/partition/offset``."""

    topic: str
    partition: int
    offset: int

    def __str__(self) -> str:
        return f"{self.topic}/{self.partition}/{self.offset}"


class WrittenBy(StrEnum):
    """The framework that wrote a dead letter, according to its headers."""

    WINDOW_CONSUMER = "window-consumer"
    SPRING = "spring"
    KAFKA_CONNECT = "kafka-connect"
    KAFKA_STREAMS = "kafka-streams"
    SHARE_GROUP = "share-group"
    KPIPE = "kpipe"
    UNKNOWN = "unknown"


@frozen(kw_only=True)
class DeadLetter:
    """A record of a dead-letter topic and its metadata; None means unknown.

    Times are milliseconds since 1970.
    """

    position: Position
    written_by: WrittenBy
    id: str
    """``wc-id``, else the record's first position, else the position of the dead letter."""
    key: bytes | None
    value: bytes | None
    """The record's value; None also if ``value_ref`` replaces it."""
    headers: Headers
    """All headers, in order."""
    own_headers: Headers
    """The headers that the record had before it failed, in order."""
    timestamp: int | None
    """When the dead letter was written."""
    original_topic: str | None = None
    original_partition: int | None = None
    original_offset: int | None = None
    original_timestamp: int | None = None
    group: str | None = None
    handler: str | None = None
    """The handler; for Kafka Connect, the connector and its task."""
    app_version: str | None = None
    host: str | None = None
    """The host whose worker gave up; for a pod, its name."""
    reason: str | None = None
    """A member of ``headers.Reason``; a later version may write others."""
    error_class: str | None = None
    error_message: str | None = None
    error_stack: str | None = None
    fingerprint: str | None = None
    """Equal for errors of one class from one place; computed if no header has it."""
    attempts: int | None = None
    level: str | None = None
    first_failure: int | None = None
    last_failure: int | None = None
    redrives: int = 0
    """How often a redrive put it back."""
    value_ref: str | None = None
    """The position and checksum of an oversized value: ``topic/partition/offset sha256:hex``."""

    @property
    def failed_at(self) -> int | None:
        """Return the time of the latest known failure, from which the age counts."""
        return self.last_failure if self.last_failure is not None else self.timestamp

    @property
    def original(self) -> Position | None:
        """Return the position of the first delivery, None unless it is completely known."""
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
        """Return whether the dead letter may hold only the position of its record.

        Share groups copy key and value only if ``errors.deadletterqueue.copy.record.enable`` is
        set.
        """
        empty = self.key is None and self.value is None
        return empty and self.written_by is WrittenBy.SHARE_GROUP and self.original is not None


def read_dead_letter(message: Message) -> DeadLetter:
    """Return the dead letter in a record of any dead-letter topic.

    If several frameworks handled the record in turn, the last writer's headers win. In a record
    without known headers every field is unknown.
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
    """Return the writer of the last header that identifies a writer."""
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
    """Return the record's own headers: all except ours, plus those of ours that producers may set.

    An id that differs from the record's position came from the producer.
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
