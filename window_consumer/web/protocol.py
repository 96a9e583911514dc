"""A uvicorn connection that slow and idle clients cannot keep open."""

from __future__ import annotations

import asyncio
from typing import Any, Final

from uvicorn.protocols.http.h11_impl import H11Protocol, RequestResponseCycle

DEADLINE_S: Final = 10.0
"""The time for a request to arrive, and for a client to continue reading."""


ROOM: Final = 100
"""This many connections above the limit get 503; further ones are closed at once."""


class IdleTimeoutProtocol(H11Protocol):
    """A connection that closes when nothing is requested, or nothing is read, for the deadline.

    A client that does not read cannot exhaust memory: uvicorn buffers at most 64 KiB beyond the
    system's own buffers.
    """

    def __init__(self, *given: Any, deadline_s: float = DEADLINE_S, **named: Any):
        super().__init__(*given, **named)
        self._deadline_s = deadline_s
        self._look: asyncio.TimerHandle | None = None
        self._seen: object = None
        """The request at the last check."""
        self._was_stuck = False

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override] # uvicorn's own
        """Start the periodic check."""
        super().connection_made(transport)
        if len(self.connections) > (self.limit_concurrency or 0) + ROOM:
            transport.abort()
            return
        self._look = self.loop.call_later(self._deadline_s, self._check_idle)

    def connection_lost(self, exc: Exception | None) -> None:
        """Stop the check."""
        if self._look is not None:
            self._look.cancel()
        super().connection_lost(exc)

    def _check_idle(self) -> None:
        cycle: RequestResponseCycle | None = self.cycle  # uvicorn starts with None
        is_stuck = self.flow.write_paused
        # Idle, or with a request whose body does not arrive.
        was_idle = cycle is self._seen and (
            cycle is None or cycle.response_complete or cycle.more_body
        )
        if self.transport.is_closing() or was_idle or (is_stuck and self._was_stuck):
            self.transport.abort()
            return
        self._seen, self._was_stuck = cycle, is_stuck
        self._look = self.loop.call_later(self._deadline_s, self._check_idle)
