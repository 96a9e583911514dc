"""The page of the audit, and its API."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from http import HTTPStatus
from typing import Any, Final

from starlette.requests import Request
from starlette.responses import FileResponse, Response
from starlette.routing import Route

from window_consumer.admin.answers import FILES, Json, ReadingRoute, error, fields_of, principal_of
from window_consumer.audit.page_reports import PageReports, ReportQuestion
from window_consumer.config.units import UnitError, parse_duration
from window_consumer.model.errors import UsageError
from window_consumer.plan.feature import PageLink

_LONGEST: Final = 300
_MOST_NAMES: Final = 100


class AuditPages:
    """Answers at /audit and below /api/audit. Owner: the server's event loop."""

    is_there = True
    link = PageLink("audit", "Audit")

    def __init__(self, reports: PageReports):
        self._reports = reports

    def routes(self) -> Sequence[Route]:
        """Return the routes."""
        return [
            Route("/audit", self._page),
            ReadingRoute("/api/audit/reports", self._start, methods=["POST"]),
            Route("/api/audit/reports/{number:int}", self._report, methods=["GET"]),
        ]

    async def _page(self, _: Request) -> Response:
        return FileResponse(FILES / "audit.html")

    async def _start(self, request: Request) -> Response:
        try:
            question = _question(await fields_of(request))
            if question.refresh and not principal_of(request).may_operate:
                why = "reading new counts changes the table: this needs a token with the role"
                return error(HTTPStatus.FORBIDDEN, f"{why} operate")
            report = self._reports.start(question)
        except UsageError as problem:
            return error(HTTPStatus.BAD_REQUEST, str(problem))
        return Json(report.as_json(), HTTPStatus.ACCEPTED)

    async def _report(self, request: Request) -> Response:
        report = self._reports.of(request.path_params["number"])
        if report is None:
            return error(HTTPStatus.NOT_FOUND, "this report no longer exists")
        return Json(report.as_json())


def _question(given: Mapping[str, Any]) -> ReportQuestion:
    """Return the query in a request; raises UsageError."""
    names = {name: _names(given, name) for name in ("topics", "groups")}
    refresh = given.get("refresh") is True
    bucket = given.get("bucket")
    if bucket is not None:
        return ReportQuestion(
            "explanation",
            bucket=_text(bucket, "bucket"),
            topics=names["topics"],
            groups=names["groups"],
            refresh=refresh,
        )
    since = _text(given.get("since", "1d"), "since")
    try:
        parse_duration(since)
    except UnitError as problem:
        raise UsageError(f"since: {since!r} {problem}") from problem
    return ReportQuestion(
        "report", since=since, topics=names["topics"], groups=names["groups"], refresh=refresh
    )


def _names(given: Mapping[str, Any], name: str) -> tuple[str, ...]:
    found = given.get(name, [])
    if not isinstance(found, list) or len(found) > _MOST_NAMES:
        raise UsageError(f"{name} is a list of up to {_MOST_NAMES} names")
    return tuple(_text(each, name) for each in found)


def _text(given: object, name: str) -> str:
    if not isinstance(given, str) or not 0 < len(given) <= _LONGEST or not given.isprintable():
        raise UsageError(f"{name} is a text of 1 to {_LONGEST} characters")
    return given
