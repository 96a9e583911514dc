"""Delays the answers to wrong tokens, increasingly, and logs their addresses."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from time import monotonic
from typing import Final

from attrs import define

from window_consumer.model.log_events import LogEvent
from window_consumer.runtime.log import own_logger

FIRST_DELAY_S: Final = 0.5
LONGEST_DELAY_S: Final = 8.0
"""The delay starts at half a second, for typing errors, and doubles up to this."""

_FORGET_S: Final = 60.0
"""After this long without a wrong token, an address starts over."""

_QUIET_S: Final = 10.0
"""At most one line per address in this time: repeated attempts must not fill the log."""

_MOST_ADDRESSES: Final = 1000

_log = own_logger()


@define
class _Attempts:
    last_at: float
    logged_at: float = float("-inf")
    count: int = 0
    suppressed: int = 0


class LoginDelay:
    """The recent wrong tokens by address. Owner: the event loop."""

    def __init__(self, now: Callable[[], float] = monotonic):
        self._now = now
        self._by_address: dict[str, _Attempts] = {}

    async def delay(self, address: str) -> None:
        """Record a wrong token, and wait until it may be answered."""
        await asyncio.sleep(self.record_failure(address))

    def record_failure(self, address: str) -> float:
        """Record a wrong token, and return the delay of its answer in seconds."""
        now = self._now()
        attempts = self._by_address.get(address)
        if attempts is None or now - attempts.last_at > _FORGET_S:
            if len(self._by_address) >= _MOST_ADDRESSES:
                self._by_address.clear()
            attempts = self._by_address[address] = _Attempts(now)
        attempts.last_at = now
        attempts.count += 1
        self._report(address, attempts, now)
        doublings = min(attempts.count - 1, 10)
        return min(LONGEST_DELAY_S, FIRST_DELAY_S * (1 << doublings))

    def _report(self, address: str, attempts: _Attempts, now: float) -> None:
        if now - attempts.logged_at < _QUIET_S:
            attempts.suppressed += 1
            return
        more = f" ({attempts.suppressed} more since the last line)" if attempts.suppressed else ""
        attempts.logged_at, attempts.suppressed = now, 0
        _log.warning(
            "admin: %s showed a wrong token%s",
            address or "somebody",
            more,
            extra={"event": LogEvent.ADMIN_TOKEN_REFUSED},
        )
