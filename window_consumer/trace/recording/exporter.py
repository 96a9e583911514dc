"""The ways out for trace events: what the writer's thread needs of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import NamedTuple, Protocol

from attrs import frozen


class Written(NamedTuple):
    """A batch of events, as its bytes."""

    data: bytes
    events: int


@frozen
class ExporterFigures:
    """What has become of what a way out has got."""

    lost: Mapping[str, int] = MappingProxyType({})
    """Events that it had to give up, by why: see the list of metrics."""
    torn: int = 0
    """Batches that earlier processes have left on disk in part."""
    held_bytes: int | None = None
    """What waits on disk; None where nothing does."""
    blocked_s: float = 0.0
    """For how long it has got rid of nothing that it tried to; 0 while all is well."""


class TraceExporter(Protocol):
    """Where batches go. Owner: the writer's thread."""

    @property
    def lost(self) -> int:
        """How many events it had to give up so far. Any thread may ask."""

    def figures(self) -> ExporterFigures:
        """Return what has become of what it got. Any thread may ask."""

    def start(self) -> None:
        """Begin; never raises."""

    def write(self, batches: Sequence[Written]) -> None:
        """Take batches, or lose and count them; never raises, never waits for a broker."""

    def close(self, timeout_s: float) -> None:
        """Get rid of what can be got rid of in this time."""
