"""The routes of the live window: frames, cells, and interventions."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from http import HTTPStatus
from typing import Any, Final

from starlette.requests import Request
from starlette.responses import FileResponse, Response, StreamingResponse
from starlette.routing import Route

from window_consumer.admin.answers import (
    FILES,
    Asker,
    Json,
    ReadingRoute,
    error,
    principal_of,
    who_asks,
)
from window_consumer.admin.board import (
    Board,
    BoardAddress,
    CellPlace,
    number_named,
    partition_named,
)
from window_consumer.admin.feed import MOST_PAGES, Feed
from window_consumer.admin.interventions import (
    BREAKER_WORDS,
    CONCURRENCY_WORDS,
    DONE,
    NO_REASON,
    STATUS,
    WORDS,
    is_reason,
)
from window_consumer.admin.interventions_log import (
    NO_ANSWER,
    cell_fields,
    log_concurrency,
    log_decision,
    log_halt,
    log_intervention,
)
from window_consumer.engine.guards.breaker_state import BreakerAnswer
from window_consumer.engine.guards.interventions import (
    ConcurrencyAnswer,
    ConcurrencyRequest,
    Intervention,
    PauseRequest,
)
from window_consumer.model.log_events import LogEvent
from window_consumer.plan.feature import PageLink
from window_consumer.runtime.log import own_logger

_NO_NUMBER: Final = "partitions, cells and offsets are whole numbers"
_NO_VALUES: Final = (
    "values are not shown here: admin: {values: true} in the configuration allows it, and mask"
    " can still hide parts of them"
)

_NO_INTERVENTION: Final = "a record has value, skip and dead-letter"

_log = own_logger()

_WORKER: Final = "/api/workers/{worker}"
_PARTITION: Final = _WORKER + "/partitions/{topic}/{partition}"


class WindowPages:
    """Answers about the windows of a board. Owner: the server's event loop."""

    is_there = True
    link = PageLink("./", "Live window")

    def __init__(
        self,
        board: Board,
        features: Callable[[], dict[str, bool]],
        *,
        values: bool,
        most_pages: int = MOST_PAGES,
    ):
        """``features`` returns which features have pages; ``values`` permits showing values."""
        self._board = board
        self._features = features
        self._values = values
        self._most_pages = most_pages
        self._feed: Feed | None = None

    def routes(self) -> Sequence[Route]:
        """Return the routes."""
        return [
            Route("/", self._page),
            Route("/api/windows", self._windows),
            Route("/api/frame", self._one_frame),
            Route("/api/events", self._events),
            Route(_PARTITION + "/cells/{number}", self._cell),
            Route(_PARTITION + "/records/{offset}", self._cell),
            ReadingRoute(_PARTITION + "/records/{offset}/value", self._value, methods=["POST"]),
            Route(_PARTITION + "/records/{offset}/{wanted}", self._intervene, methods=["POST"]),
            Route(_WORKER + "/breaker/{what}", self._decide_breaker, methods=["POST"]),
            Route(_WORKER + "/concurrency/{limit}", self._set_concurrency, methods=["POST"]),
            Route(_WORKER + "/{what}", self._halt, methods=["POST"]),
            Route(_PARTITION + "/{what}", self._halt, methods=["POST"]),
        ]

    def start(self) -> None:
        """Start to take samples; the event loop must be running."""
        self._feed = Feed(self._board, self._most_pages)
        self._feed.start()

    def close(self) -> None:
        """Disconnect the pages. Runs on the event loop."""
        if self._feed is not None:
            self._feed.close()

    async def _page(self, _: Request) -> Response:
        return FileResponse(FILES / "index.html")

    async def _windows(self, request: Request) -> Response:
        stacks, history = (request.query_params.get(each) == "1" for each in ("stacks", "history"))
        answer = await _elsewhere(lambda: self._board.windows(stacks=stacks, history=history))
        return Json(answer)

    async def _one_frame(self, request: Request) -> Response:
        since = number_named(request.query_params.get("since", "0"))
        if since is None:
            return error(HTTPStatus.BAD_REQUEST, "since is a time in milliseconds since 1970")
        return Json(await _elsewhere(lambda: self._board.frame(since)))

    async def _events(self, _: Request) -> Response:
        if self._feed is None or self._feed.is_full:
            return error(HTTPStatus.SERVICE_UNAVAILABLE, "too many pages are open already")
        return StreamingResponse(self._feed.frames(), media_type="text/event-stream")

    async def _cell(self, request: Request) -> Response:
        at = _cell_place(request)
        if at is None:
            return error(HTTPStatus.NOT_FOUND, _NO_NUMBER)
        found = await _elsewhere(lambda: self._board.cell(at))
        if found is None:
            return error(HTTPStatus.NOT_FOUND, "it is no longer in the window")
        return Json(found | {"values": self._values} | self._features())

    async def _value(self, request: Request) -> Response:
        at = _cell_place(request)
        if at is None:
            return error(HTTPStatus.NOT_FOUND, _NO_NUMBER)
        if not self._values:
            return error(HTTPStatus.FORBIDDEN, _NO_VALUES)
        found = await _elsewhere(lambda: self._board.value(at))
        if found is None:
            why = "it is not held: only unfinished records are"
            return error(HTTPStatus.NOT_FOUND, why)
        if who_asks(request):
            place = f"{at.partition} offset {at.offset}"
            _log.info(
                "%s: %s asked for the value of %s",
                at.worker,
                who_asks(request),
                place,
                extra=cell_fields(LogEvent.ADMIN_VALUE_SHOWN, Asker.of(request), at),
            )
        return Json(found)

    async def _intervene(self, request: Request) -> Response:
        at = _cell_place(request)
        given = request.path_params["wanted"]
        if at is None or given not in set(Intervention):
            return error(HTTPStatus.NOT_FOUND, _NO_NUMBER if at is None else _NO_INTERVENTION)
        wanted = Intervention(given)
        verdict = await _elsewhere(lambda: self._board.intervene(at, wanted))
        log_intervention(Asker.of(request), at, wanted, verdict)
        if verdict is None:
            return error(HTTPStatus.GATEWAY_TIMEOUT, NO_ANSWER)
        status = STATUS.get(verdict, HTTPStatus.CONFLICT)
        reason = {} if verdict in DONE else {"error": WORDS[verdict]}
        return Json({"verdict": verdict, **reason}, status)

    async def _halt(self, request: Request) -> Response:
        given = request.path_params
        what, process = given["what"], request.query_params.get("process", "")
        if what not in {"pause", "resume"}:
            return error(HTTPStatus.NOT_FOUND, "known are pause and resume")
        partition = None
        if "topic" in given:
            partition = partition_named(given["topic"], given["partition"])
            if partition is None:
                return error(HTTPStatus.NOT_FOUND, "a partition is a whole number")
        at = BoardAddress(given["worker"], partition, process)
        wanted = _pause_request(request)
        if not is_reason(wanted.reason):
            return error(HTTPStatus.BAD_REQUEST, f"reason: {NO_REASON}")
        done = await _elsewhere(lambda: self._board.halt(at, wanted, halted=what == "pause"))
        log_halt(Asker.of(request), at, what, wanted.reason, done=done)
        if done is None:
            return error(HTTPStatus.GATEWAY_TIMEOUT, NO_ANSWER)
        if not done:
            return error(
                HTTPStatus.NOT_FOUND,
                "there is no such worker here, or it does not have that partition",
            )
        return Json({"paused": what == "pause"})

    async def _set_concurrency(self, request: Request) -> Response:
        given, wanted = request.path_params, _pause_request(request)
        limit = None if given["limit"] == "auto" else number_named(given["limit"])
        if (limit is None and given["limit"] != "auto") or limit == 0:
            return error(HTTPStatus.NOT_FOUND, "a concurrency is a whole number from 1, or auto")
        if not is_reason(wanted.reason):
            return error(HTTPStatus.BAD_REQUEST, f"reason: {NO_REASON}")
        at = BoardAddress(given["worker"], None, request.query_params.get("process", ""))
        asked = ConcurrencyRequest(limit, wanted.user, wanted.reason)
        result = await _elsewhere(lambda: self._board.set_concurrency(at, asked))
        log_concurrency(Asker.of(request), at, asked, result)
        if result is None:
            return error(HTTPStatus.GATEWAY_TIMEOUT, NO_ANSWER)
        if result is ConcurrencyAnswer.OBEYED:
            return Json({"concurrency": limit, "result": result})
        missing = result is ConcurrencyAnswer.NO_SUCH_WORKER
        status = HTTPStatus.NOT_FOUND if missing else HTTPStatus.CONFLICT
        return Json({"result": result, "error": CONCURRENCY_WORDS[result]}, status)

    async def _decide_breaker(self, request: Request) -> Response:
        given = request.path_params
        what, process = given["what"], request.query_params.get("process", "")
        if what not in {"release", "hold"}:
            return error(HTTPStatus.NOT_FOUND, "known are release and hold")
        at = BoardAddress(given["worker"], None, process)
        release = what == "release"
        result = await _elsewhere(lambda: self._board.decide_breaker(at, release=release))
        log_decision(Asker.of(request), at, what, result)
        if result is None:
            return error(HTTPStatus.GATEWAY_TIMEOUT, NO_ANSWER)
        if result is BreakerAnswer.OBEYED:
            return Json({"breaker": what, "result": result})
        missing = result is BreakerAnswer.NO_SUCH_WORKER
        status = HTTPStatus.NOT_FOUND if missing else HTTPStatus.CONFLICT
        return Json({"result": result, "error": BREAKER_WORDS[result]}, status)


def _pause_request(request: Request) -> PauseRequest:
    user = principal_of(request).name
    if not who_asks(request):  # a replica, whose parent knows the sender
        user = request.query_params.get("user", "")
    return PauseRequest(user, request.query_params.get("reason", ""))


def _cell_place(request: Request) -> CellPlace | None:
    given = request.path_params
    partition = partition_named(given["topic"], given["partition"])
    by_offset = "offset" in given
    number = number_named(given["offset"] if by_offset else given["number"])
    if partition is None or number is None:
        return None
    process = request.query_params.get("process", "")
    if by_offset:
        return CellPlace(given["worker"], partition, None, number, process)
    return CellPlace(given["worker"], partition, number, None, process)


async def _elsewhere(ask: Callable[[], Any]) -> Any:
    """Run a query on another thread: poll threads may be slow."""
    return await asyncio.to_thread(ask)
