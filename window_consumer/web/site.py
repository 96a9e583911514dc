"""What is answered at which path of the admin address."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from http import HTTPStatus
from pathlib import Path
from typing import Any, Final

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import FileResponse, JSONResponse, Response, StreamingResponse
from starlette.routing import Mount, Route
from starlette.staticfiles import StaticFiles
from starlette.types import ASGIApp

from window_consumer.web.board import Board, CellPlace, Place, partition_named
from window_consumer.web.feed import Feed
from window_consumer.web.guard import Gate, Guard, error, log_in, log_out

_FILES: Final = Path(__file__).parent / "static"

_WORKER: Final = "/api/workers/{worker}"
_PARTITION: Final = _WORKER + "/partitions/{topic}/{partition}"


class Site:
    """Answers, with what a board knows. Owner: the server's event loop."""

    def __init__(self, board: Board, gate: Gate):
        self._board = board
        self._gate = gate
        self._feed: Feed | None = None

    def application(self) -> ASGIApp:
        """Return it as an ASGI application."""
        routes = [
            Route("/", self._page),
            Route("/login", self._form, methods=["GET"]),
            Route("/login", self._log_in, methods=["POST"]),
            Route("/logout", self._log_out, methods=["POST"]),
            Route("/api/session", self._session),
            Route("/api/windows", self._windows),
            Route("/api/frame", self._one_frame),
            Route("/api/events", self._events),
            Route(_PARTITION + "/cells/{number:int}", self._cell),
            Route(_PARTITION + "/records/{offset:int}", self._cell),
            Route(_WORKER + "/{what}", self._halt, methods=["POST"]),
            Route(_PARTITION + "/{what}", self._halt, methods=["POST"]),
            Mount("/static", StaticFiles(directory=_FILES)),
        ]
        application = Starlette(routes=routes)
        application.router.redirect_slashes = False  # what it would redirect to is nothing either
        return Guard(application, self._gate)

    def start(self) -> None:
        """Begin to take samples; the event loop runs."""
        self._feed = Feed(self._board)
        self._feed.start()

    def close(self) -> None:
        """Let go of those who are sent something. On the event loop."""
        if self._feed is not None:
            self._feed.close()

    async def _page(self, _: Request) -> Response:
        return FileResponse(_FILES / "index.html")

    async def _form(self, _: Request) -> Response:
        return FileResponse(_FILES / "login.html")

    async def _log_in(self, request: Request) -> Response:
        return await log_in(request, self._gate)

    async def _log_out(self, _: Request) -> Response:
        return log_out(self._gate)

    async def _session(self, _: Request) -> Response:
        return JSONResponse({"token": self._gate.token is not None})

    async def _windows(self, request: Request) -> Response:
        stacks, history = (request.query_params.get(each) == "1" for each in ("stacks", "history"))
        answer = await _elsewhere(lambda: self._board.windows(stacks=stacks, history=history))
        return JSONResponse(answer)

    async def _one_frame(self, request: Request) -> Response:
        since = request.query_params.get("since", "0")
        if not since.isdecimal():
            return error(HTTPStatus.BAD_REQUEST, "since is a time in milliseconds since 1970")
        return JSONResponse(await _elsewhere(lambda: self._board.frame(int(since))))

    async def _events(self, _: Request) -> Response:
        if self._feed is None or self._feed.is_full:
            return error(HTTPStatus.SERVICE_UNAVAILABLE, "too many pages look already")
        return StreamingResponse(self._feed.frames(), media_type="text/event-stream")

    async def _cell(self, request: Request) -> Response:
        given = request.path_params
        partition = partition_named(given["topic"], given["partition"])
        process = request.query_params.get("process", "")
        if partition is None:
            return error(HTTPStatus.NOT_FOUND, "a partition is a whole number")
        at = CellPlace(
            given["worker"], partition, given.get("number"), given.get("offset"), process
        )
        found = await _elsewhere(lambda: self._board.cell(at))
        if found is None:
            return error(HTTPStatus.NOT_FOUND, "it is not in the window any more")
        return JSONResponse(found)

    async def _halt(self, request: Request) -> Response:
        given = request.path_params
        what, process = given["what"], request.query_params.get("process", "")
        if what not in {"pause", "resume"}:
            return error(HTTPStatus.NOT_FOUND, "there are pause and resume")
        partition = None
        if "topic" in given:
            partition = partition_named(given["topic"], given["partition"])
            if partition is None:
                return error(HTTPStatus.NOT_FOUND, "a partition is a whole number")
        at = Place(given["worker"], partition, process)
        done = await _elsewhere(lambda: self._board.halt(at, halted=what == "pause"))
        if done is None:
            why = "the poll thread did not answer in time; look, and ask again"
            return error(HTTPStatus.GATEWAY_TIMEOUT, why)
        if not done:
            return error(HTTPStatus.NOT_FOUND, "there is no such worker here, or it has not got it")
        return JSONResponse({"paused": what == "pause"})


async def _elsewhere(ask: Callable[[], Any]) -> Any:
    """Ask on another thread: poll threads take their time."""
    return await asyncio.to_thread(ask)
