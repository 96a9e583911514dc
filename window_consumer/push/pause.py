"""A pause that a service requests with status 429 or 503 and Retry-After.

The Engine starts nothing before its end. This module tells calls that began before the Engine knew,
and people, about the pause.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Final

from window_consumer.engine.guards.pause_rule import PauseRule, RuleFinding
from window_consumer.model.errors import HoldCalls
from window_consumer.model.log_events import LogEvent
from window_consumer.plan.start_timeout import LOGGER

KIND: Final = "service_asks_for_pause"


class ServicePause(PauseRule):
    """The pause of one worker. The event loop writes it, and the poll thread shows it.

    Its end is kept in the loop's time and in wall time; the earlier one counts, because either may
    be wrong.
    """

    def __init__(self, worker: str):
        self._worker = worker
        self._wall_ms: Callable[[], int] = lambda: 0
        self._until = self._until_ms = 0.0
        self._why = ""

    def begin(self, wall_ms: Callable[[], int]) -> None:
        """Take the worker's wall clock, in milliseconds since 1970."""
        self._wall_ms = wall_ms

    # ---- on the loop

    def ask(self, hold: HoldCalls) -> None:
        """Record that the service asks for a pause."""
        if not self._until:
            LOGGER.warning(
                "%s: %s; no call starts until then",
                self._worker,
                hold,
                extra={
                    "event": LogEvent.PUSH_PAUSE,
                    "worker": self._worker,
                    "seconds": hold.after_s,
                },
            )
        self._why = str(hold)
        now = asyncio.get_running_loop().time()
        self._until = max(self._until, now + hold.after_s)
        self._until_ms = max(self._until_ms, self._wall_ms() + hold.after_s * 1000)

    def check(self) -> None:
        """Raise HoldCalls until the end of the pause."""
        if not self._until:
            return
        left_s = min(self._until - asyncio.get_running_loop().time(), self._left_s)
        if left_s > 0:
            raise HoldCalls(left_s, self._why)
        self._until = self._until_ms = 0.0

    # ---- on the poll thread

    def pauses(self, now: float) -> bool:  # noqa: ARG002 - see PauseRule
        """Return False: the Engine holds calls back, and no person needs to resume them."""
        return False

    def findings(self) -> Sequence[RuleFinding]:
        """Return a finding if there is a pause."""
        left_s = self._left_s
        if left_s <= 0:
            return ()
        text = (
            f"no call starts for another {left_s:.0f} s, because the service asked for a pause:"
            f" {self._why}"
        )
        figures = {"left_s": round(left_s, 1)}
        return [RuleFinding(KIND, text, ends_itself=True, figures=figures)]

    def accept(self) -> None:
        """Keep the pause: it ends by itself."""

    @property
    def _left_s(self) -> float:
        return (self._until_ms - self._wall_ms()) / 1000
