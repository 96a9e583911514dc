"""What a dead letter looks like when it goes back: key, value and the user's headers as they were.

Our headers are replaced, never appended: what the record is and has been through stays, what was
said of its last failure does not.
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

_HONOURED_ANYWHERE = (names.KEPT_ON_FOREIGN_TOPICS - {names.REDRIVES}) | {names.HEADERS_LOST}
_IDENTITY_AND_HISTORY = _HONOURED_ANYWHERE | {
    names.ORIGINAL_TOPIC,
    names.ORIGINAL_PARTITION,
    names.ORIGINAL_OFFSET,
    names.ORIGINAL_TIMESTAMP,
    names.FORMAT,
    names.GROUP,
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
    """Whether it is the group's own entry topic; to the source topic only what counts there goes:
    other groups read it, and a record begins anew there."""


@frozen
class ValueReference:
    """Where a value is that was too large for the dead-letter topic, and what it has to be."""

    topic: str
    partition: int
    offset: int
    sha256_hex: str

    @classmethod
    def parse(cls, text: bytes) -> ValueReference | None:
        """Read ``topic/partition/offset sha256:hex``; None for anything else."""
        place, _, digest = text.decode("utf-8", "replace").partition(" sha256:")
        topic, _, numbers = place.partition("/")
        partition, _, offset = numbers.partition("/")
        if not (topic and partition.isdecimal() and offset.isdecimal() and digest):
            return None
        return cls(topic, int(partition), int(offset), digest)

    def fits(self, value: bytes | None) -> bool:
        """Tell whether this is the value that was meant."""
        return value is not None and sha256(value).hexdigest() == self.sha256_hex

    def __str__(self) -> str:
        return f"{self.topic}/{self.partition}/{self.offset}"


class DeadLetterHeaders:
    """The headers of one dead letter, read once: the client makes them anew at each question."""

    __slots__ = ("_last", "pairs", "redrives")

    def __init__(self, message: Message):
        self.pairs: Sequence[tuple[str, bytes | None]] = message.headers() or ()
        self._last = dict(self.pairs)
        if len(self._last) != len(self.pairs):
            self.pairs = names.each_once(self.pairs)
        self.redrives = count(self._last.get(names.REDRIVES)) or 0
        """How often the record was put back; 0 where that cannot be read."""

    @property
    def value_ref(self) -> bytes | None:
        """What stands for the value, None where the dead letter has the value itself."""
        if names.VALUE_REF not in self._last:
            return None
        return self._last[names.VALUE_REF] or b""

    @property
    def original_partition(self) -> int | None:
        """The number of the partition that the record was delivered from."""
        return count(self._last.get(names.ORIGINAL_PARTITION))


class Returning:
    """Makes the copies that go back to one destination. Owner: one thread."""

    def __init__(self, to: Destination):
        self._to = to
        self._kept = names.KeptHeaders(
            _IDENTITY_AND_HISTORY if to.of_the_ladder else _HONOURED_ANYWHERE
        )

    def copy(self, message: Message, headers: DeadLetterHeaders, value: bytes | None) -> Copy:
        """Make the copy of a dead letter that goes back; ``value`` is the record's own.

        It has the number of the partition that the record came from where there is one, else the
        key decides.
        """
        kept = self._kept.of(headers.pairs)
        kept.append((names.REDRIVES, b"%d" % (headers.redrives + 1)))
        partition = place_of(headers.original_partition, self._to.partitions)
        return Copy(self._to.topic, partition, message.key(), value, kept)
