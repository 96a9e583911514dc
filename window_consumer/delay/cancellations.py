"""The cancelled delayed records, according to the topic of cancellations."""

from __future__ import annotations

from hashlib import blake2b
from typing import Final

from attrs import define, field, frozen

from window_consumer.model import headers as names
from window_consumer.model.header_values import count
from window_consumer.model.record import Message
from window_consumer.model.record_identity import id_text

KEPT_ON_S: Final = 86_400.0
"""How long a cancellation is kept after its record is due, in case the service was down then."""

_DELIVERED: Final = 50_000
"""How many ids of delivered records are kept, and as many before those."""

Mark = int
"""A 16-byte hash of an id: collisions are practically impossible."""


def mark_of(record_id: str) -> Mark:
    """Return the hash of an id."""
    return int.from_bytes(blake2b(record_id.encode(), digest_size=16).digest())


@frozen
class CancellationFigures:
    """A process's figures about cancellations."""

    kept: int
    late: int
    """Cancellations that arrived after this process had delivered the record."""


@define
class Cancellations:
    """The cancelled records. The thread that reads the topic adds them; any thread may query them.

    A million takes about 120 MiB.
    """

    longest_s: float
    """``delay.max``: no record is due later than this after its cancellation."""
    _due: dict[Mark, int] = field(init=False, factory=dict)
    """The latest due time that a cancellation covers, in seconds since 1970."""
    _late: int = field(init=False, default=0)
    _delivered: set[int] = field(init=False, factory=set)
    """Python's own hashes, at a tenth of a mark's cost: they affect only a count."""
    _delivered_before: set[int] = field(init=False, factory=set)

    def take(self, message: Message, now_s: float) -> None:
        """Add a record of the topic; an empty value revokes the cancellation.

        ``now_s`` is in seconds since 1970.
        """
        key = message.key()
        if not key:
            return
        record_id = id_text(key)
        mark = mark_of(record_id)
        if not message.value():
            self._due.pop(mark, None)
            return
        latest = now_s + self.longest_s
        _, written_ms = message.timestamp()
        if written_ms > 0:
            latest = min(latest, written_ms / 1000 + self.longest_s)
        named_ms = count(dict(message.headers() or ()).get(names.DELIVER_AT))
        if named_ms is not None:
            latest = min(latest, named_ms / 1000)
        self._due[mark] = -int(-latest // 1)
        hashed = hash(record_id)
        if hashed in self._delivered or hashed in self._delivered_before:
            self._late += 1

    def __bool__(self) -> bool:
        """Return whether any record is cancelled."""
        return bool(self._due)

    def due(self, mark: Mark) -> int | None:
        """Return the latest due time that a cancellation covers; None if there is none.

        In seconds since 1970.
        """
        return self._due.get(mark)

    def remove_past(self, now_s: float) -> None:
        """Remove cancellations of records that were due more than a day ago."""
        before = now_s - KEPT_ON_S
        for mark in [mark for mark, due in self._due.items() if due < before]:
            del self._due[mark]

    def delivered(self, record_id: str) -> None:
        """Record that a record was delivered: a cancellation that follows is too late."""
        if len(self._delivered) >= _DELIVERED:
            self._delivered_before, self._delivered = self._delivered, set()
        self._delivered.add(hash(record_id))

    def figures(self) -> CancellationFigures:
        """Return the counts."""
        return CancellationFigures(len(self._due), self._late)
