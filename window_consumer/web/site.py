"""What is answered at which path of the admin address."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp

from window_consumer.web.board import Board
from window_consumer.web.guard import Gate, Guard, log_in, log_out


class Site:
    """Answers, with what a board knows."""

    def __init__(self, board: Board, gate: Gate):
        self._board = board
        self._gate = gate

    def application(self) -> ASGIApp:
        """Return it as an ASGI application."""
        routes = [
            Route("/api/windows", self._windows),
            Route("/login", self._log_in, methods=["POST"]),
            Route("/logout", self._log_out, methods=["POST"]),
        ]
        return Guard(Starlette(routes=routes), self._gate)

    async def _windows(self, request: Request) -> Response:
        asked = request.query_params
        return JSONResponse(
            await _elsewhere(
                lambda: self._board.windows(
                    stacks=asked.get("stacks") == "1", history=asked.get("history") == "1"
                )
            )
        )

    async def _log_in(self, request: Request) -> Response:
        return await log_in(request, self._gate)

    async def _log_out(self, _: Request) -> Response:
        return log_out(self._gate)


async def _elsewhere(ask: Callable[[], Any]) -> Any:
    """Ask on another thread: poll threads take their time."""
    return await asyncio.to_thread(ask)
