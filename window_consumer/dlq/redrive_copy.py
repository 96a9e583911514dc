"""The copy of a dead letter that goes back: key, value and user headers are unchanged.

Our headers are replaced, never appended. The record's identity and history stay; the details of its
last failure are dropped.
"""

from __future__ import annotations

from collections.abc import Sequence
from hashlib import sha256

from attrs import frozen

from window_consumer.engine.retry.copy_record import place_of
from window_consumer.model import headers as names
from window_consumer.model.header_values import count
from window_consumer.model.protocols import Copy
from window_consumer.model.record import Message

_HONOURED_ANYWHERE = (
    (names.KEPT_ON_FOREIGN_TOPICS - {names.REDRIVES}) | {names.HEADERS_LOST} | names.DELIVERY
)
_IDENTITY_AND_HISTORY = _HONOURED_ANYWHERE | {
    names.ORIGINAL_TOPIC,
    names.ORIGINAL_PARTITION,
    names.ORIGINAL_OFFSET,
    names.ORIGINAL_TIMESTAMP,
    names.ORIGINAL_TOPIC_ID,
    names.FORMAT,
    names.GROUP,
    names.REPLAY,
    names.ATTEMPTS,
    names.FIRST_FAILURE,
    names.LAST_FAILURE,
}


@frozen
class Destination:
    """The topic that dead letters go back to."""

    topic: str
    partitions: int
    of_the_ladder: bool
    """Whether it is the group's own entry topic. A copy for the source topic keeps only the headers
    that apply there: other groups read it, and the record starts over."""


@frozen
class ValueReference:
    """The position and checksum of a value that was too large for the dead-letter topic."""

    topic: str
    partition: int
    offset: int
    sha256_hex: str

    @classmethod
    def parse(cls, text: bytes) -> ValueReference | None:
        """Parse ``topic/partition/offset sha256:hex``; return None for anything else."""
        place, _, digest = text.decode("utf-8", "replace").partition(" sha256:")
        topic, _, numbers = place.partition("/")
        partition, _, offset = numbers.partition("/")
        if not (topic and partition.isdecimal() and offset.isdecimal() and digest):
            return None
        return cls(topic, int(partition), int(offset), digest)

    def fits(self, value: bytes | None) -> bool:
        """Return whether a value matches the reference."""
        return value is not None and sha256(value).hexdigest() == self.sha256_hex

    def __str__(self) -> str:
        return f"{self.topic}/{self.partition}/{self.offset}"


class DeadLetterHeaders:
    """The headers of one dead letter, read once: the client rebuilds them on every call."""

    __slots__ = ("_last", "pairs", "redrives")

    def __init__(self, message: Message):
        self.pairs: Sequence[tuple[str, bytes | None]] = message.headers() or ()
        self._last = dict(self.pairs)
        if len(self._last) != len(self.pairs):
            self.pairs = names.each_once(self.pairs)
        self.redrives = count(self._last.get(names.REDRIVES)) or 0
        """How often the record was put back; 0 if unreadable."""

    @property
    def value_ref(self) -> bytes | None:
        """Return the reference that replaces the value, None if the dead letter has the value."""
        if names.VALUE_REF not in self._last:
            return None
        return self._last[names.VALUE_REF] or b""

    @property
    def original_partition(self) -> int | None:
        """Return the number of the partition that first delivered the record."""
        return count(self._last.get(names.ORIGINAL_PARTITION))


class Returning:
    """Builds the copies for one destination. Owner: one thread."""

    def __init__(self, to: Destination):
        self._to = to
        self._kept = names.KeptHeaders(
            _IDENTITY_AND_HISTORY if to.of_the_ladder else _HONOURED_ANYWHERE
        )

    def copy(self, message: Message, headers: DeadLetterHeaders, value: bytes | None) -> Copy:
        """Build the copy of a dead letter that goes back; ``value`` is the record's own.

        It keeps the number of the original partition if the destination has that partition;
        otherwise the key decides.
        """
        kept = self._kept.of(headers.pairs)
        kept.append((names.REDRIVES, b"%d" % (headers.redrives + 1)))
        partition = place_of(headers.original_partition, self._to.partitions)
        return Copy(self._to.topic, partition, message.key(), value, kept)
