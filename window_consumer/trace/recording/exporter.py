"""The exporter interface: a destination of the writer's thread."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import NamedTuple, Protocol

from attrs import frozen


class Written(NamedTuple):
    """An encoded batch of events."""

    data: bytes
    events: int


@frozen
class ExporterFigures:
    """What happened to the events that an exporter received."""

    lost: Mapping[str, int] = MappingProxyType({})
    """Lost events by reason: see the list of metrics."""
    torn: int = 0
    """Incomplete batches that earlier processes left on disk."""
    held_bytes: int | None = None
    """Bytes that wait on disk; None without a disk."""
    blocked_s: float = 0.0
    """For how many seconds every attempt has failed; 0 while attempts succeed."""


class TraceExporter(Protocol):
    """The destination of batches. Owner: the writer's thread."""

    @property
    def lost(self) -> int:
        """Return how many events were lost so far. Any thread may call it."""

    def figures(self) -> ExporterFigures:
        """Return what happened to the events so far. Any thread may call it."""

    def start(self) -> None:
        """Start; never raises."""

    def write(self, batches: Sequence[Written]) -> None:
        """Accept batches, or lose and count them; never raises, never waits for a broker."""

    def close(self, timeout_s: float) -> None:
        """Export as much as possible within this time."""
