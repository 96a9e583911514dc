"""The memory of resolved dead letters: the compacted topic ``<group>.dlq.state``.

A dead letter is never changed or deleted when somebody deals with it: a record of this topic says
so. Its key is the dead letter's place, ``topic/partition/offset``; its value is JSON.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

from attrs import field, frozen

from window_consumer.model.dead_letter import Position
from window_consumer.model.protocols import Copy
from window_consumer.model.record import Message

REDRIVEN = "redriven"


def state_topic(group: str) -> str:
    """Return the name of a group's memory of resolved dead letters."""
    return f"{group}.dlq.state"


@frozen
class Resolution:
    """What was done with a dead letter."""

    what: str
    """``redriven``; a later version may write other words."""
    at_ms: int
    """When, in milliseconds since 1970."""
    by: str
    """The consumer group that holds the progress of the redrive."""
    to: str
    """The topic that the record was put into."""
    topic_id: str | None
    """The id of the dead-letter topic, None where the cluster tells no ids."""

    def as_bytes(self) -> bytes:
        """Return the value of the state topic's record."""
        named = {
            "what": self.what,
            "at": self.at_ms,
            "by": self.by,
            "to": self.to,
            "topic_id": self.topic_id,
        }
        return json.dumps(named, separators=(",", ":")).encode()

    def records(self, topic: str, resolved: Iterable[Position]) -> list[Copy]:
        """Return what is to be written into the state topic for these dead letters."""
        value = self.as_bytes()
        return [Copy(topic, None, str(position).encode(), value, []) for position in resolved]


@frozen
class Resolved:
    """The resolved dead letters of one dead-letter topic."""

    _by_partition: dict[int, dict[int, Resolution]] = field(factory=dict)

    def __contains__(self, position: Position | Message) -> bool:
        return self.of(position) is not None

    def __len__(self) -> int:
        return sum(map(len, self._by_partition.values()))

    def of(self, letter: Position | Message) -> Resolution | None:
        """Return what was done with a dead letter, None while it is open."""
        if isinstance(letter, Position):
            partition, offset = letter.partition, letter.offset
        else:
            partition, offset = letter.partition(), letter.offset()
        return self._by_partition.get(partition, {}).get(offset)


def read_resolved(messages: Iterable[Message], topic: str, topic_id: str | None) -> Resolved:
    """Return the resolved dead letters of one topic; ``messages`` are those of the state topic.

    ``topic_id`` is the dead-letter topic's id now: what was said of an earlier topic of the same
    name does not count, because offsets began anew with it. What cannot be read is left out: then
    the dead letter counts as open.
    """
    found: dict[int, dict[int, Resolution]] = {}
    known: dict[bytes, Resolution | None] = {}  # records of one batch have the same value
    prefix = f"{topic}/".encode()
    for message in messages:
        key, value = message.key(), message.value()
        place = None if key is None else _place(key, prefix)
        if place is None:
            continue
        partition, offset = place
        if value is None:
            found.get(partition, {}).pop(offset, None)
            continue
        if value not in known:
            known[value] = _resolution(value)
        resolution = known[value]
        if resolution is not None and resolution.topic_id == topic_id:
            found.setdefault(partition, {})[offset] = resolution
    return Resolved(found)


def _place(key: bytes, prefix: bytes) -> tuple[int, int] | None:
    partition, _, offset = key.removeprefix(prefix).partition(b"/")
    if not (key.startswith(prefix) and partition.isdigit() and offset.isdigit()):
        return None
    return int(partition), int(offset)


def _resolution(value: bytes) -> Resolution | None:
    try:
        said: Any = json.loads(value)
        topic_id = said["topic_id"]
        return Resolution(
            what=str(said["what"]),
            at_ms=int(said["at"]),
            by=str(said["by"]),
            to=str(said["to"]),
            topic_id=None if topic_id is None else str(topic_id),
        )
    except (ValueError, TypeError, KeyError):
        return None
