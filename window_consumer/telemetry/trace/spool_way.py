"""Through files: what was written survives the process, and waits while brokers are away."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from time import monotonic

from window_consumer.telemetry.trace.shipping import Shipping
from window_consumer.telemetry.trace.spool import Spool
from window_consumer.telemetry.trace.way import WayFigures, Written


class SpoolWay:
    """Writes batches into the spool, and lets another thread ship them."""

    def __init__(self, spool: Spool, shipping: Shipping, ship_after_s: float):
        self._spool = spool
        self._shipping = shipping
        self._ship_after_s = ship_after_s
        self._held_bytes = 0
        """As of the last look: a disk that hangs must not keep metrics from being told."""

    @property
    def lost(self) -> int:
        """How many events found no room on disk, or were refused by the broker for good."""
        return self._spool.lost + self._shipping.refused

    def figures(self) -> WayFigures:
        """Return what was lost and why, what waits, and for how long nothing gets away."""
        return WayFigures(
            {"disk": self._spool.lost, "broker": self._shipping.refused},
            self._shipping.torn,
            self._held_bytes,
            max(self._spool.blocked_s, self._shipping.blocked_s),
        )

    def start(self) -> None:
        """Begin to ship what earlier processes have left."""
        self._shipping.start()

    def write(self, batches: Sequence[Written]) -> None:
        """Write batches down, and have them on disk."""
        if batches:
            self._spool.append(batches)
        began = self._spool.open_since
        idle = not (self._shipping.busy or self._spool.finished)
        if began is not None and idle and monotonic() - began >= self._ship_after_s:
            self._spool.finish()
        self._look()

    def close(self, timeout_s: float) -> None:
        """Ship what can be shipped in this time; the rest is for the next process."""
        self._spool.finish()
        self._shipping.close(timeout_s)
        self._spool.close()
        self._look()

    def _look(self) -> None:
        with suppress(OSError):
            self._held_bytes = self._spool.held_bytes()
