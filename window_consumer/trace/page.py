"""The page of a record's journey, and its API."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from http import HTTPStatus
from time import time_ns
from typing import Any, Final, Protocol
from urllib.parse import quote

from starlette.requests import Request
from starlette.responses import FileResponse, RedirectResponse, Response
from starlette.routing import BaseRoute, Route

from window_consumer.admin.answers import FILES, Json, error
from window_consumer.model.errors import WindowConsumerError
from window_consumer.model.log_events import LogEvent
from window_consumer.plan.feature import PageLink
from window_consumer.runtime.log import own_logger
from window_consumer.trace.query import TraceQuery

_LONGEST: Final = 1_000
"""The longest id, key or other text, in characters."""

_NO_QUESTION: Final = f"a search needs texts, of at most {_LONGEST} characters each"

_NOT_HERE: Final = (
    "no journeys are shown here: set admin: {pipeline: pipeline.yaml} in the configuration, to"
    " locate the table of the trace"
)

_log = own_logger()


class Trace(Protocol):
    """Answers queries about the message trace. One thread calls it at a time.

    Raises WindowConsumerError for problems that the user can fix.
    """

    def journey(self, record: str) -> dict[str, Any]:
        """Return a record's journey as plain values."""

    def search(self, question: TraceQuery) -> dict[str, Any]:
        """Return the records with matching steps as plain values; the query's key is plain."""


class TracePages:
    """Answers at /trace and below /api/trace. Owner: the server's event loop."""

    def __init__(self, trace: Trace | None):
        self._trace = trace
        # A search takes memory and a core that handlers need: one at a time.
        self._turn = asyncio.Semaphore(1)

    @property
    def is_there(self) -> bool:
        """Return whether a trace is configured."""
        return self._trace is not None

    @property
    def link(self) -> PageLink | None:
        """Return the places in the navigation."""
        return PageLink("trace", "Journeys of records") if self.is_there else None

    def routes(self) -> Sequence[BaseRoute]:
        """Return the routes."""
        return [
            Route("/trace", self._page),
            Route("/trace/{record:path}", self._record),
            Route("/api/trace", self._search),
            Route("/api/trace/{record:path}", self._journey),
        ]

    async def _page(self, _: Request) -> Response:
        if not self.is_there:
            return error(HTTPStatus.NOT_FOUND, _NOT_HERE)
        return FileResponse(FILES / "trace.html")

    async def _record(self, request: Request) -> Response:
        # The page uses relative addresses: a reverse proxy may add a prefix.
        record = request.path_params["record"]
        up = "../" * (request.scope["path"].count("/") - 1)
        return RedirectResponse(f"{up}trace?record={quote(record, safe='')}", HTTPStatus.SEE_OTHER)

    async def _journey(self, request: Request) -> Response:
        record = request.path_params["record"]
        if not 0 < len(record) <= _LONGEST:
            return error(HTTPStatus.BAD_REQUEST, f"an id has 1 to {_LONGEST} characters")
        return await self._answer(lambda trace: trace.journey(record))

    async def _search(self, request: Request) -> Response:
        given = dict(request.query_params)
        if any(len(text) > _LONGEST for text in given.values()) or not any(given.values()):
            return error(HTTPStatus.BAD_REQUEST, _NO_QUESTION)
        try:
            question = TraceQuery.of_texts(given, time_ns() // 1000)
        except ValueError as problem:
            return error(HTTPStatus.BAD_REQUEST, str(problem))
        return await self._answer(lambda trace: trace.search(question))

    async def _answer(self, ask: Callable[[Trace], dict[str, Any]]) -> Response:
        trace = self._trace
        if trace is None:
            return error(HTTPStatus.NOT_FOUND, _NOT_HERE)
        try:
            async with self._turn:
                return Json(await asyncio.to_thread(ask, trace))
        except WindowConsumerError as problem:
            _log.warning(
                "admin: the trace does not answer: %s",
                problem,
                extra={"event": LogEvent.TRACE_LOOKUP_FAILED},
            )
            why = "the trace does not answer; see the log"
            return error(HTTPStatus.SERVICE_UNAVAILABLE, why)
