"""Detects that the process was frozen: by SIGSTOP, a suspended machine or a paused container.

A process that was frozen for longer than its session has lost its partitions. The client learns
this from its next, overdue heartbeat. Until then nothing may start.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from window_consumer.engine.decisions import Outlived
from window_consumer.engine.engine import Engine
from window_consumer.model.log_events import LogEvent, Warn
from window_consumer.model.record import TopicPartition

FREEZE_S = 2.0
"""The poll thread waits for 0.1 s at most, so a longer gap means a freeze. A session counts from
its last heartbeat: one of 6 s, the broker's default minimum, with a heartbeat each 3 s may end
after 3 s."""

DOUBT_S = 1.0
"""How long nothing starts after a freeze: enough time for a heartbeat and its answer."""


class FreezeDetector:
    """Checks the clock for the poll thread, which owns it."""

    def __init__(self, engine: Engine, now: Callable[[], float], warn: Warn):
        self._engine = engine
        self._now = now
        self._warn = warn
        self.alive_at = now()
        """When the poll thread was last active. Any thread may read it."""
        self._suspects: Sequence[Outlived] = ()

    def notice(self) -> float:
        """Return the time; after a freeze, take back what has not started.

        Call it before reading any result: calls that ended since then are suspects.
        """
        now = self._now()
        stood_still_s = now - self.alive_at
        self.alive_at = now
        if stood_still_s > FREEZE_S:
            self._suspects = self._engine.on_stood_still(DOUBT_S, now)
            self._warn(
                LogEvent.PROCESS_FROZEN,
                f"was frozen for {stood_still_s:.1f} s: nothing starts for {DOUBT_S:g} s, until"
                " the group has reported partitions with new owners",
            )
        return now

    def was_busy(self) -> None:
        """Record that the poll thread itself was busy with requests to the cluster."""
        self.alive_at = self._now()

    def suspects(self, lost: Sequence[TopicPartition]) -> list[Outlived]:
        """Return the calls for lost partitions that may have run beside calls of a new owner."""
        return [call for call in self._suspects if call.name in lost]
