"""A record's history in a copy's headers: the reader of the wire contract.

Only copies in a group's own ladder topics are read like this. On other topics nearly all of our
headers are meaningless: they may have been copied from elsewhere.
"""

from __future__ import annotations

from typing import NamedTuple

from window_consumer.model import headers as names
from window_consumer.model.header_values import count
from window_consumer.model.record import TIMESTAMP_NOT_AVAILABLE, Message, TopicPartition
from window_consumer.model.record_identity import given_id, origin_in


class Hop(NamedTuple):
    """A record's origin and history; times in milliseconds since 1970.

    A tuple, and read without a Python loop, as one is created for each failed record.
    """

    record_id: bytes
    origin: TopicPartition
    offset: int
    """The offset of the first delivery, like ``origin``."""
    timestamp: int | None
    """The record's own time; None if it has none."""
    attempts: int = 0
    """Handler calls before it came to its current topic."""
    first_failure: int | None = None
    not_before: int | None = None
    level: bytes | None = None
    topic_id: bytes | None = None
    """The id of the topic of the first delivery, from a copy's header."""


def of_source(message: Message) -> Hop:
    """Return the hop of a record that was delivered from a source topic."""
    name = TopicPartition(message.topic(), message.partition())
    offset = message.offset()
    headers = message.headers()
    record_id = (given_id(headers) if headers else None) or _place(name, offset)
    kind, milliseconds = message.timestamp()
    timestamp = None if kind == TIMESTAMP_NOT_AVAILABLE else milliseconds
    return Hop(record_id, name, offset, timestamp)


def of_copy(message: Message) -> Hop:
    """Return the hop of a copy in the group's own ladder.

    Missing or unreadable headers count as never written: the copy is then a record of its current
    topic, called for the first time, and due.
    """
    found = dict(message.headers() or ())
    first = origin_in(found)
    if first is None:
        hop = of_source(message)
        origin, offset, record_id, timestamp = hop.origin, hop.offset, hop.record_id, hop.timestamp
    else:
        origin, offset = TopicPartition(first.topic, first.partition), first.offset
        record_id = found.get(names.ID) or _place(origin, offset)
        timestamp = count(found.get(names.ORIGINAL_TIMESTAMP))
    return Hop(
        record_id=record_id,
        origin=origin,
        offset=offset,
        timestamp=timestamp,
        attempts=count(found.get(names.ATTEMPTS)) or 0,
        first_failure=count(found.get(names.FIRST_FAILURE)),
        not_before=count(found.get(names.NOT_BEFORE)),
        level=found.get(names.LEVEL),
        topic_id=None if first is None else found.get(names.ORIGINAL_TOPIC_ID),
    )


def attempts_before(message: Message) -> int:
    """Return how often a handler was called for a copy before it came to its topic."""
    return count(dict(message.headers() or ()).get(names.ATTEMPTS)) or 0


def not_before(message: Message) -> int | None:
    """Return when a copy is due, in milliseconds since 1970; None if it has no due time."""
    return count(dict(message.headers() or ()).get(names.NOT_BEFORE))


def _place(name: TopicPartition, offset: int) -> bytes:
    return b"%s/%d/%d" % (name.topic.encode(), name.partition, offset)
