"""The page of the groups, and its API."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from time import monotonic
from typing import Any, Final

from starlette.requests import Request
from starlette.responses import FileResponse, Response
from starlette.routing import Route

from window_consumer.admin.answers import FILES, Json, answered
from window_consumer.plan.feature import PageLink

_FRESH_S: Final = 2.0
"""Pages that ask within this time share one answer, because each costs the cluster requests."""


class GroupPages:
    """Answers at /groups and /api/groups. Owner: the server's event loop."""

    is_there = True
    link = PageLink("groups", "Groups")

    def __init__(self, ask: Callable[[], dict[str, Any]]):
        """``ask`` returns the status of all groups; it may block, and runs once at a time."""
        self._ask = ask
        self._turn = asyncio.Semaphore(1)
        self._answer: dict[str, Any] = {}
        self._asked_at = float("-inf")

    def routes(self) -> Sequence[Route]:
        """Return the routes."""
        return [Route("/groups", self._page), Route("/api/groups", self._groups)]

    async def _page(self, _: Request) -> Response:
        return FileResponse(FILES / "groups.html")

    async def _groups(self, _: Request) -> Response:
        async with self._turn:
            if monotonic() - self._asked_at > _FRESH_S:
                self._answer = await answered(self._ask)
                self._asked_at = monotonic()
        return Json(self._answer)
