"""The capacity and the limitations of the embedded broker."""

from __future__ import annotations

from collections.abc import Sequence

from attrs import frozen

from window_consumer.model.errors import CapacityError
from window_consumer.model.protocols import Headers
from window_consumer.model.record import TopicPartition

LIMITS: tuple[str, ...] = (
    "It keeps 5 MiB of a partition and then silently drops the oldest records, read or not.",
    "It removes nothing else: there is no retention by time and no compaction.",
    "It listens on 127.0.0.1 only, without TLS, passwords and ACLs.",
    "When the process that started it ends, everything in it is gone.",
    "A producer that writes to a missing topic creates it, with 4 partitions.",
    "Partitions cannot be added, and admin clients cannot create, alter or delete topics.",
    "Admin clients cannot read or change settings, describe groups, or delete groups or records.",
    "Aborted transactions are delivered, even to read_committed consumers.",
    "Offsets that are sent with a transaction are forgotten.",
    "A retry of an idempotent producer is not recognised: it may duplicate the record.",
    "A look-up of offsets by timestamp finds nothing.",
    "It checks no sizes: a real broker refuses large records, and commit metadata of 4,096 bytes.",
    "A waiting fetch is not answered when records arrive: set fetch.wait.max.ms to 5-20.",
    "A fetch gets one batch of a partition: records sent one by one are read slowly.",
    "A group of the classic protocol accepts no later members: use group.protocol=consumer.",
    "It assigns partitions by range, whatever group.remote.assignor says.",
)
"""Sentences for users: where the embedded broker differs from a real one."""

KEPT_BYTES = 5 * 1024 * 1024
"""How much the mock keeps of a partition, in bytes of its batches (measured).

Its other limit, 100,000 batches, is never reached, because a batch has at least 68 bytes.
"""

BATCH_BYTES = 61
"""Size of a batch's header."""

ROOM_BYTES = KEPT_BYTES - 64 * 1024
"""How much we fill. The rest is for batch headers: large fills consist of batches of about 1 MB.
"""

_RECORD_BYTES = 36
"""The most bytes that a record needs besides its contents; about 10 is usual."""

_HEADER_BYTES = 10
"""The most bytes that a header needs besides its name and value; 2 is usual."""


@frozen
class NewRecord:
    """A record to write. Without a partition its key decides; without a key, the next in turn."""

    value: bytes | None
    key: bytes | None = None
    headers: Headers = ()
    partition: int | None = None

    def size(self) -> int:
        """Return the most bytes that the record can take in a batch."""
        size = _RECORD_BYTES + len(self.value or b"") + len(self.key or b"")
        for name, value in self.headers:
            size += _HEADER_BYTES + len(name.encode()) + len(value or b"")
        return size


class BrokerUsage:
    """Counts the bytes written through one EmbeddedBroker, but not by other clients."""

    def __init__(self) -> None:
        self._used: dict[TopicPartition, int] = {}

    def charge(self, records: Sequence[tuple[TopicPartition, int]]) -> None:
        """Count records written in one call, given as partition and size in bytes.

        Raises CapacityError, and counts none of them, if a partition cannot keep them all.
        """
        added: dict[TopicPartition, int] = {}
        for name, size in records:
            added[name] = added.get(name, BATCH_BYTES) + size
        for name, size in added.items():
            if self.used(name) + size > ROOM_BYTES:
                raise CapacityError(
                    f"the embedded broker keeps {ROOM_BYTES:,} bytes of a partition, {name} holds"
                    f" {self.used(name):,} and {sum(other == name for other, _ in records):,}"
                    f" records of {size:,} would follow: it would silently drop the oldest."
                    " Write less, create the topic with more partitions, delete read records with"
                    " delete_records(), or use a real Kafka"
                )
        for name, size in added.items():
            self._used[name] = self.used(name) + size

    def used(self, name: TopicPartition) -> int:
        """Return how many bytes a partition was charged."""
        return self._used.get(name, 0)

    def reset(self, name: TopicPartition) -> None:
        """Reset the count to zero: the partition is empty."""
        self._used.pop(name, None)
