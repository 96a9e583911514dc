"""Receipt handles: which lease of which process a client means, and whether it is current.

A handle names partition, offset, assignment and owner. This distinguishes handles of another
process or of an earlier assignment from handles whose lease has ended.
"""

from __future__ import annotations

import json
from base64 import urlsafe_b64decode, urlsafe_b64encode
from itertools import count
from typing import Final

from attrs import astuple, frozen

from window_consumer.engine.observer import Observer
from window_consumer.engine.partition import Partition
from window_consumer.model.record import TopicPartition

_VERSION: Final = 1
_FIELDS: Final = (str, str, str, str, int, int, int, int)

_ASSIGNMENTS: Final = count(1)
"""No two assignments in a process have the same number, not even those of a worker and its
successor."""


@frozen
class ReceiptHandle:
    """The contents of a handle's text."""

    owner: str
    """Different in each process."""
    url: str
    """The owner's address as clients write it."""
    queue: str
    topic: str
    partition: int
    offset: int
    assignment: int
    lease: int

    @property
    def name(self) -> TopicPartition:
        """The partition that the record was delivered from, perhaps of a retry topic."""
        return TopicPartition(self.topic, self.partition)

    def __str__(self) -> str:
        """Return the text that clients get."""
        text = json.dumps([_VERSION, *astuple(self)], separators=(",", ":"))
        return urlsafe_b64encode(text.encode()).rstrip(b"=").decode()

    @classmethod
    def parse(cls, text: str) -> ReceiptHandle | None:
        """Read a handle; return None for a text that is not a handle."""
        try:
            padded = text.encode("ascii") + b"=" * (-len(text) % 4)
            version, *fields = json.loads(urlsafe_b64decode(padded))
            if version == _VERSION and tuple(map(type, fields)) == _FIELDS:
                return cls(*fields)
        except (ValueError, TypeError, RecursionError):
            return None
        return None


class AssignmentNumbers(Observer):
    """The numbers of a worker's assignments. Owner: its poll thread; any thread may ask."""

    def __init__(self) -> None:
        self._numbers: dict[Partition, int] = {}
        self._current: dict[TopicPartition, int] = {}

    def assigned(self, partition: Partition, now: float) -> None:
        """Count an assignment."""
        del now
        self._numbers[partition] = self._current[partition.name] = next(_ASSIGNMENTS)

    def given_up(self, partition: Partition, now: float) -> None:
        """End an assignment."""
        del now
        number = self._numbers.pop(partition, None)
        if self._current.get(partition.name) == number:
            self._current.pop(partition.name, None)

    def number_of(self, partition: Partition) -> int:
        """Return the number of an assignment; 0 if it has ended."""
        return self._numbers.get(partition, 0)

    def is_current(self, handle: ReceiptHandle) -> bool:
        """Return whether a handle belongs to the present assignment of its partition."""
        return self._current.get(handle.name) == handle.assignment
