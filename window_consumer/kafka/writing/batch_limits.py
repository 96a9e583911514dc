"""Batches that are too large for a topic: they shrink until the too large record is alone.

A broker refuses a batch as a whole. The client has one size for all batches, so each refusal makes
the next client's batches smaller: to the topic's limit if the brokers report it, else by half.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping
from typing import Any, Final, Generic, Protocol, TypeVar

_BATCH_SIZE: Final = "batch.size"
_DEFAULT_BYTES: Final = 1_000_000
"""librdkafka's."""


class Sized(Protocol):
    """A record to send."""

    @property
    def topic(self) -> str:
        """Return its destination."""

    @property
    def size(self) -> int:
        """Return the bytes of key, value and headers."""


Sent = TypeVar("Sent", bound=Sized)


def batch_bytes(properties: Mapping[str, Any]) -> int:
    """Return the size of the batches of a client with these properties."""
    return int(properties.get(_BATCH_SIZE, _DEFAULT_BYTES))


class BatchLimits(Generic[Sent]):
    """The refused records, and the batch size of the next client."""

    def __init__(self, most_bytes: int):
        self._bytes = most_bytes
        self._refused: defaultdict[tuple[str, int], list[Sent]] = defaultdict(list)

    def __len__(self) -> int:
        """Return how many refused records wait for ``sort_out``."""
        return sum(map(len, list(self._refused.values())))

    @property
    def topics(self) -> set[str]:
        """The topics whose limits ``sort_out`` needs."""
        return {topic for topic, _ in self._refused}

    @property
    def properties(self) -> dict[str, Any]:
        """The client's property for it."""
        return {_BATCH_SIZE: self._bytes}

    def add_refused(self, record: Sent, partition: int) -> None:
        """Add a record of a batch that a partition has refused."""
        self._refused[record.topic, partition].append(record)

    def sort_out(
        self, limit_of: Callable[[str], int | None]
    ) -> tuple[list[Sent], list[tuple[Sent, int | None]]]:
        """Return the records to send again, and those that are too large, with their limit."""
        again: list[Sent] = []
        alone: list[tuple[Sent, int | None]] = []
        smallest = self._bytes
        for (topic, _), group in self._refused.items():
            limit = limit_of(topic)
            # A record that fills a batch was alone in it.
            alone += [(each, limit) for each in group if self._is_alone(each, group)]
            others = [each for each in group if not self._is_alone(each, group)]
            if others:
                again += others
                smallest = min(smallest, self._smaller(group, limit))
        self._refused.clear()
        self._bytes = smallest
        return again, alone

    def _is_alone(self, record: Sent, group: list[Sent]) -> bool:
        return len(group) == 1 or record.size >= self._bytes

    def _smaller(self, group: list[Sent], limit: int | None) -> int:
        fitting = self._bytes if limit is None else limit * 9 // 10
        if fitting < self._bytes:
            return max(1, fitting)
        return max(1, min(self._bytes, sum(each.size for each in group)) // 2)
