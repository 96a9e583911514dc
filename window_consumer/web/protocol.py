"""HTTP for the admin address: uvicorn's, with an end for those who are slow or silent."""

from __future__ import annotations

import asyncio
from typing import Any, Final

from uvicorn.protocols.http.h11_impl import H11Protocol, RequestResponseCycle

PATIENCE_S: Final = 10.0
"""For a request to come, and for whoever is sent something to read on."""


class PatientProtocol(H11Protocol):
    """One connection. It is cut when for so long nothing was asked, or nothing was read.

    What is held for one that does not read is bounded all the same: by uvicorn, which writes no
    further than 64 KiB beyond what the system takes.
    """

    def __init__(self, *given: Any, **named: Any):
        super().__init__(*given, **named)
        self._look: asyncio.TimerHandle | None = None
        self._seen: object = None
        """The request of the last look."""
        self._was_stuck = False

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override] # uvicorn's own
        """Begin to look now and then."""
        super().connection_made(transport)
        self._look = self.loop.call_later(PATIENCE_S, self._look_again)

    def connection_lost(self, exc: Exception | None) -> None:
        """Look no more."""
        if self._look is not None:
            self._look.cancel()
        super().connection_lost(exc)

    def _look_again(self) -> None:
        cycle: RequestResponseCycle | None = self.cycle  # uvicorn begins with None
        is_stuck = self.flow.write_paused
        # Idle, or with a request of which the rest does not come.
        was_idle = cycle is self._seen and (
            cycle is None or cycle.response_complete or cycle.more_body
        )
        if self.transport.is_closing() or was_idle or (is_stuck and self._was_stuck):
            self.transport.abort()
            return
        self._seen, self._was_stuck = cycle, is_stuck
        self._look = self.loop.call_later(PATIENCE_S, self._look_again)
