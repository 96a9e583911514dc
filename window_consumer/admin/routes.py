"""The routes of the admin address: the login, and the pages of features."""

from __future__ import annotations

from collections.abc import Mapping
from http import HTTPStatus
from types import MappingProxyType

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import FileResponse, RedirectResponse, Response
from starlette.routing import Mount, Route
from starlette.staticfiles import StaticFiles
from starlette.types import ASGIApp

from window_consumer.admin.answers import (
    FILES,
    Json,
    ReadingRoute,
    error,
    outcomes_module,
    principal_of,
)
from window_consumer.admin.board import Board
from window_consumer.admin.feed import MOST_PAGES
from window_consumer.admin.guard import Gate, Guard, log_in, log_out
from window_consumer.admin.window_page import WindowPages
from window_consumer.plan.feature import PageLink, Pages


class AdminRoutes:
    """Answers requests. Owner: the server's event loop."""

    def __init__(
        self,
        board: Board | None,
        gate: Gate,
        pages: Mapping[str, Pages] = MappingProxyType({}),
        *,
        values: bool,
        most_pages: int = MOST_PAGES,
    ):
        """``pages`` are those of features. Without a board there are no windows."""
        self._pages = pages
        self._gate = gate
        self._windows: WindowPages | None = None
        if board is not None:
            self._windows = WindowPages(board, self._features, values=values, most_pages=most_pages)

    def application(self) -> ASGIApp:
        """Return the ASGI application."""
        windows = [Route("/", self._front)] if self._windows is None else self._windows.routes()
        added = [*windows, *(route for pages in self._pages.values() for route in pages.routes())]
        routes = [
            Route("/login", self._form, methods=["GET"]),
            Route("/login", self._log_in, methods=["POST"]),
            ReadingRoute("/logout", self._log_out, methods=["POST"]),
            Route("/api/session", self._session),
            *added,
            Route("/static/outcomes.js", self._outcomes),
            Mount("/static", StaticFiles(directory=FILES)),
        ]
        application = Starlette(routes=routes, exception_handlers={HTTPException: _refused})
        application.router.redirect_slashes = False  # the target would not exist either
        for_people = [route for route in added if not route.path.startswith("/api/")]
        return Guard(application, self._gate, routes, for_people)

    def start(self) -> None:
        """Start what the pages need; the event loop must be running."""
        if self._windows is not None:
            self._windows.start()

    def close(self) -> None:
        """Disconnect the pages. Runs on the event loop."""
        if self._windows is not None:
            self._windows.close()

    def _features(self) -> dict[str, bool]:
        """Return which features have something to show."""
        return {name: pages.is_there for name, pages in self._pages.items()}

    def _links(self) -> list[PageLink]:
        pages = [*filter(None, [self._windows]), *self._pages.values()]
        return [each.link for each in pages if each.link is not None]

    async def _front(self, _: Request) -> Response:
        links = self._links()
        if not links:
            return error(HTTPStatus.NOT_FOUND, "there is nothing to show: see docs/console.md")
        return RedirectResponse(links[0].path, HTTPStatus.SEE_OTHER)

    async def _outcomes(self, _: Request) -> Response:
        return Response(outcomes_module(), media_type="text/javascript")

    async def _form(self, _: Request) -> Response:
        return FileResponse(FILES / "login.html")

    async def _log_in(self, request: Request) -> Response:
        return await log_in(request, self._gate)

    async def _log_out(self, _: Request) -> Response:
        return log_out(self._gate)

    async def _session(self, request: Request) -> Response:
        principal = principal_of(request)
        session = {
            "token": bool(self._gate.tokens),
            "name": principal.name,
            "role": principal.role,
            "links": [[link.path, link.text] for link in self._links()],
        }
        return Json(session | self._features())


async def _refused(_: Request, refusal: Exception) -> Response:
    """Return the usual JSON error for an unknown path or method."""
    assert isinstance(refusal, HTTPException)
    answer = error(HTTPStatus(refusal.status_code), refusal.detail)
    answer.headers.update(refusal.headers or {})
    return answer
