"""The ways out for trace events: what the writer's thread needs of them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, Protocol


class Written(NamedTuple):
    """A batch of events, as its bytes."""

    data: bytes
    events: int


class Way(Protocol):
    """Where batches go. Owner: the writer's thread."""

    @property
    def lost(self) -> int:
        """How many events it had to give up so far. Any thread may ask."""

    def start(self) -> None:
        """Begin; never raises."""

    def write(self, batches: Sequence[Written]) -> None:
        """Take batches, or lose and count them; never raises, never waits for a broker."""

    def close(self, timeout_s: float) -> None:
        """Get rid of what can be got rid of in this time."""
