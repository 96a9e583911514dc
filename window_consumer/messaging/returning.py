"""What a dead letter looks like when it goes back: key, value and the user's headers as they were.

Our headers are replaced, never appended: what the record is and has been through stays, what was
said of its last failure does not.
"""

from __future__ import annotations

from hashlib import sha256

from attrs import frozen

from window_consumer.model import headers as names
from window_consumer.model.header_values import count
from window_consumer.model.protocols import Copy
from window_consumer.model.record import Message

_HONOURED_ANYWHERE = names.KEPT_ON_FOREIGN_TOPICS - {names.REDRIVES}
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
    source_partitions: int
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


def redrives_of(message: Message) -> int:
    """Return how often a record was put back; 0 where its header cannot be read."""
    for name, value in reversed(message.headers() or ()):
        if name == names.REDRIVES:
            return count(value) or 0
    return 0


def reference_of(message: Message) -> bytes | None:
    """Return what stands for the value, None where the dead letter has the value itself."""
    for name, value in message.headers() or ():
        if name == names.VALUE_REF:
            return bytes(value or b"")
    return None


def returned(message: Message, value: bytes | None, to: Destination) -> Copy:
    """Make the copy of a dead letter that goes back; ``value`` is the record's own.

    It has the number of the partition that the record came from where the counts are equal, else
    the key decides.
    """
    kept = _IDENTITY_AND_HISTORY if to.of_the_ladder else _HONOURED_ANYWHERE
    headers: list[tuple[str, bytes | None]] = []
    redrives = 0
    partition: int | None = None
    for pair in message.headers() or ():
        name = pair[0]
        if not name.startswith(names.PREFIX) or name in kept:
            headers.append(pair)
        if name == names.ORIGINAL_PARTITION:
            partition = count(pair[1])
        elif name == names.REDRIVES:
            redrives = count(pair[1]) or 0
    headers.append((names.REDRIVES, b"%d" % (redrives + 1)))
    if to.partitions != to.source_partitions or (partition or 0) >= to.partitions:
        partition = None
    return Copy(to.topic, partition, message.key(), value, headers)
