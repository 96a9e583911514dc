"""The page of dead letters, and its API."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from http import HTTPStatus
from typing import Any, Final, TypeVar

from starlette.requests import Request
from starlette.responses import FileResponse, Response
from starlette.routing import Route

from window_consumer.admin.answers import (
    FILES,
    Json,
    ReadingRoute,
    answered,
    error,
    fields_of,
    principal_fields,
    principal_of,
    who_asks,
)
from window_consumer.dlq.page_answers import DeadLetterAnswers, LetterSelection
from window_consumer.dlq.page_jobs import LetterJob, LetterJobs, PurgeWork, RedriveWork
from window_consumer.dlq.purge import Before
from window_consumer.dlq.redrive_setup import RedriveRequest
from window_consumer.model.conditions.expressions import ExpressionError
from window_consumer.model.errors import UsageError, WindowConsumerError
from window_consumer.model.log_events import LogEvent
from window_consumer.plan.feature import PageContext, PageLink
from window_consumer.runtime.log import own_logger

T = TypeVar("T")

_LONGEST: Final = 4_000
"""The longest condition, name or topic, in characters."""

_MOST_TOPICS: Final = 100
_MOST_REDRIVES: Final = 1_000
_HIGHEST_RATE: Final = 1e7

_log = own_logger()


class DeadLetterPages:
    """Answers at /dead-letters and below /api/dead-letters. Owner: the server's event loop."""

    is_there = True
    link = PageLink("dead-letters", "Dead letters")

    def __init__(self, context: PageContext, answers: DeadLetterAnswers):
        self._context = context
        self._answers = answers
        self._jobs = LetterJobs(context)
        # Reading topics takes memory and a core that handlers need: one query at a time.
        self._turn = asyncio.Semaphore(1)

    def routes(self) -> Sequence[Route]:
        """Return the routes."""
        api = "/api/dead-letters"
        job = f"{api}/jobs/{{number:int}}"
        return [
            Route("/dead-letters", self._page),
            Route(api, self._handled(self._find)),
            ReadingRoute(f"{api}/letter", self._handled(self._show), methods=["POST"]),
            Route(f"{api}/jobs", self._listed, methods=["GET"]),
            Route(f"{api}/redrive", self._handled(self._redrive), methods=["POST"]),
            Route(f"{api}/purge", self._handled(self._purge), methods=["POST"]),
            Route(f"{job}/confirm", self._handled(self._confirm), methods=["POST"]),
            Route(f"{job}/stop", self._handled(self._stop), methods=["POST"]),
        ]

    async def _page(self, _: Request) -> Response:
        return FileResponse(FILES / "dead-letters.html")

    def _handled(
        self, answer: Callable[[Request], Awaitable[Response]]
    ) -> Callable[[Request], Awaitable[Response]]:
        """Return a readable error without secrets."""

        async def handled(request: Request) -> Response:
            try:
                return await answer(request)
            except (UsageError, ExpressionError) as problem:
                return error(HTTPStatus.BAD_REQUEST, self._context.mask(str(problem)))
            except WindowConsumerError as problem:
                return error(HTTPStatus.SERVICE_UNAVAILABLE, self._context.mask(str(problem)))

        return handled

    async def _find(self, request: Request) -> Response:
        query = request.query_params
        given = {"where": query.get("where", ""), "topics": query.getlist("topic")}
        selection = _selection(given)
        return Json(await self._asked(lambda: self._answers.find(selection)))

    async def _show(self, request: Request) -> Response:
        given = await fields_of(request)
        name, topics = _text(given, "name"), _selection(given).topics
        view = await self._asked(lambda: self._answers.show(name, topics))
        _log.info(
            "dead letters: %s asked for %s",
            who_asks(request) or "somebody",
            view["dead_letter"],
            extra={
                "event": LogEvent.DLQ_LETTER_SHOWN,
                "dead_letter": view["dead_letter"],
                **principal_fields(request),
            },
        )
        return Json(view)

    async def _listed(self, _: Request) -> Response:
        return Json({"jobs": self._jobs.listed()})

    async def _redrive(self, request: Request) -> Response:
        given = await fields_of(request)
        selection = _selection(given)
        redrive = RedriveRequest(
            where=selection.condition,
            dry_run=True,
            rate=_number(given, "rate", None, _HIGHEST_RATE),
            max_redrives=int(_number(given, "max_redrives", 3, _MOST_REDRIVES, least=1) or 3),
            restart=given.get("restart") is True,
        )
        return self._start(request, RedriveWork(self._context, selection, redrive))

    async def _purge(self, request: Request) -> Response:
        given = await fields_of(request)
        selection = _selection(given)
        if len(selection.topics) != 1:
            raise UsageError("choose one topic to delete from")
        if selection.condition is not None:
            raise UsageError("a purge deletes everything written before: it takes no where")
        try:
            before = Before.parse(_text(given, "before"), round(time.time() * 1000))
        except ValueError as problem:
            raise UsageError(str(problem)) from problem
        partition = _number(given, "partition", None, 2**31 - 1, least=0)
        number = None if partition is None else int(partition)
        return self._start(request, PurgeWork(self._answers, selection, before, number))

    def _start(self, request: Request, work: RedriveWork | PurgeWork) -> Response:
        by = principal_of(request).name
        return _job(self._jobs.start(work, by, **principal_fields(request)))

    async def _confirm(self, request: Request) -> Response:
        number, by = request.path_params["number"], principal_of(request).name
        return _job(self._jobs.confirm(number, by, **principal_fields(request)))

    async def _stop(self, request: Request) -> Response:
        return _job(self._jobs.stop(request.path_params["number"]))

    async def _asked(self, ask: Callable[[], T]) -> T:
        async with self._turn:
            return await answered(ask)


def _job(job: LetterJob) -> Response:
    return Json(job.as_json(), HTTPStatus.ACCEPTED)


def _selection(given: Mapping[str, Any]) -> LetterSelection:
    """Return the selection in a request; raises UsageError."""
    topics = given.get("topics", [])
    if not isinstance(topics, list) or len(topics) > _MOST_TOPICS:
        raise UsageError(f"topics is a list of up to {_MOST_TOPICS} names")
    names = tuple(_text({"topic": each}, "topic") for each in topics)
    return LetterSelection(names, _text(given, "where", ""))


def _text(given: Mapping[str, Any], name: str, default: str | None = None) -> str:
    text = given.get(name, default)
    if not isinstance(text, str) or len(text) > _LONGEST or not (text or default is not None):
        raise UsageError(f"{name} is a text of up to {_LONGEST} characters")
    return text


def _number(
    given: Mapping[str, Any], name: str, default: float | None, most: float, least: float = 1e-3
) -> float | None:
    number = given.get(name)
    if number is None:
        return default
    if isinstance(number, bool) or not isinstance(number, int | float):
        raise UsageError(f"{name} is a number")
    if not least <= number <= most:
        raise UsageError(f"{name} is a number from {least:g} to {most:g}")
    return number
