"""Frames for all pages that look: one is made for all of them, and nobody waits for anybody.

A page that reads slowly misses frames, which have everything; of the charts' samples each has the
last few. With many pages frames come less often, so that they cost no more.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import suppress
from time import monotonic
from typing import Any, Final

from window_consumer.admin.board import (
    Board,
    now_ms,
)
from window_consumer.admin.history import EVERY_S
from window_consumer.model.log_events import LogEvent
from window_consumer.runtime.log import own_logger

FRAME_S: Final = 0.2
MOST_PAGES: Final = 256
_SENT_PER_S: Final = 250
"""Frames that are sent a second, to all pages together."""

_AGAIN_MS: Final = 6000
"""Samples are sent again for so long, for pages that have missed frames."""

_SILENT_S: Final = 5.0
"""After so long without a frame a page is told that there is none, and that we are there."""

_log = own_logger()


class Feed:
    """Makes frames while somebody looks. Owner: the server's event loop."""

    def __init__(self, board: Board, most_pages: int = MOST_PAGES):
        self._board = board
        self._most_pages = most_pages
        self._pages = 0
        self._news = asyncio.Event()
        self._frame: dict[str, Any] | None = None
        self._text = b""
        self._made = 0
        self._tasks: list[asyncio.Task[None]] = []
        self.closed = False

    @property
    def is_full(self) -> bool:
        """So many pages look that no other one may."""
        return self._pages >= self._most_pages

    def start(self) -> None:
        """Begin to take samples, and frames while somebody looks."""
        if not self._tasks:
            self._tasks = [asyncio.create_task(self._sample()), asyncio.create_task(self._make())]

    async def frames(self) -> AsyncIterator[bytes]:
        """Yield the frames of one page, as server-sent events, until the end."""
        self._pages += 1
        try:
            yield b"retry: 1000\n\n"
            yield _event(await asyncio.to_thread(self._board.frame, 0))
            while not self.closed:
                with suppress(TimeoutError):
                    await asyncio.wait_for(self._news.wait(), _SILENT_S)
                    yield self._text
                    continue
                yield b": nothing new\n\n"
        finally:
            self._pages -= 1

    def close(self) -> None:
        """Let all pages end."""
        self.closed = True
        self._news.set()
        for task in self._tasks:
            task.cancel()

    async def _sample(self) -> None:
        while True:
            await asyncio.sleep(EVERY_S)
            await self._safely(self._board.take_samples)

    async def _make(self) -> None:
        while True:
            began = monotonic()
            if self._pages:
                frame = await self._safely(self._board.frame, now_ms() - _AGAIN_MS)
                if frame is not None:
                    self._made += 1
                    self._text = _event({"number": self._made, **frame})
                    # Whoever waits now gets this one; whoever still sends gets a later one.
                    self._news.set()
                    self._news = asyncio.Event()
            every_s = max(FRAME_S, self._pages / _SENT_PER_S)
            await asyncio.sleep(max(FRAME_S / 4, every_s - (monotonic() - began)))

    async def _safely(self, ask: Any, *given: Any) -> Any:
        try:
            return await asyncio.to_thread(ask, *given)
        except Exception:
            # Whoever looks must see the next frame, whatever became of this one.
            _log.exception(
                "admin: no frame could be made; please report this bug",
                extra={"event": LogEvent.ADMIN_FRAME_FAILED},
            )
            return None


def _event(frame: dict[str, Any]) -> bytes:
    return b"data: " + json.dumps(frame, separators=(",", ":")).encode() + b"\n\n"
