"""Frames for all open pages: each frame is built once, and no page waits for another.

A slow page misses frames; each frame is complete, except that charts get the last few samples. With
more pages there are fewer frames per second, so the total cost stays the same.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import suppress
from time import monotonic
from typing import Any, Final

from window_consumer.admin.board import Board, now_ms
from window_consumer.admin.history import EVERY_S
from window_consumer.model.log_events import LogEvent
from window_consumer.runtime.log import own_logger

FRAME_S: Final = 0.2
MOST_PAGES: Final = 256
_SENT_PER_S: Final = 250
"""Frames per second, for all pages together."""

_AGAIN_MS: Final = 6000
"""Samples are repeated for this long, for pages that missed frames."""

_SILENT_S: Final = 5.0
"""A page without a frame for this long gets a comment, which keeps the connection alive."""

_log = own_logger()


class Feed:
    """Builds frames while pages are open. Owner: the server's event loop."""

    def __init__(self, board: Board, most_pages: int = MOST_PAGES):
        self._board = board
        self._most_pages = most_pages
        self._pages = 0
        self._news = asyncio.Event()
        self._text = b""
        self._made = 0
        self._tasks: list[asyncio.Task[None]] = []
        self.closed = False

    @property
    def is_full(self) -> bool:
        """Return whether the limit of open pages is reached."""
        return self._pages >= self._most_pages

    def start(self) -> None:
        """Start to take samples, and to build frames while pages are open."""
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
        """End all pages."""
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
                    # Pages that wait now get this frame; pages that still send get a later one.
                    self._news.set()
                    self._news = asyncio.Event()
            every_s = max(FRAME_S, self._pages / _SENT_PER_S)
            await asyncio.sleep(max(FRAME_S / 4, every_s - (monotonic() - began)))

    async def _safely(self, ask: Any, *given: Any) -> Any:
        try:
            return await asyncio.to_thread(ask, *given)
        except Exception:
            # A failed frame must not prevent the next one.
            _log.exception(
                "admin: building a frame failed; please report this bug",
                extra={"event": LogEvent.ADMIN_FRAME_FAILED},
            )
            return None


def _event(frame: dict[str, Any]) -> bytes:
    return b"data: " + json.dumps(frame, separators=(",", ":")).encode() + b"\n\n"
