"""Responses and routes of the admin address, shared with the pages of other features."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Callable, Mapping
from contextlib import suppress
from http import HTTPStatus
from pathlib import Path
from typing import Any, Final, TypeVar

from attrs import frozen
from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.routing import Route
from starlette.types import Scope

from window_consumer.admin.tokens import Principal
from window_consumer.model.errors import UsageError
from window_consumer.model.outcome import OUTCOMES

T = TypeVar("T")

FILES: Final = Path(__file__).parent / "static"
"""The static files of all pages."""


_LARGEST_BODY: Final = 64 * 1024


class Json(JSONResponse):
    """A response in plain ASCII: foreign text may not be encodable as UTF-8."""

    def render(self, content: Any) -> bytes:
        """Return the JSON of a response."""
        return json.dumps(content, separators=(",", ":")).encode()


class ReadingRoute(Route):
    """A route that changes nothing, whatever its method: the role read suffices."""


PRINCIPAL: Final = "principal"
"""The key of the sender in the state of a request that has passed the guard."""


def principal_of(request: Request) -> Principal:
    """Return the sender of a request that has passed the guard."""
    principal: Principal = request.scope["state"][PRINCIPAL]
    return principal


def who_asks(request: Request) -> str:
    """Return the name and address of a request's sender, for the log.

    Empty in a replica: only its parent queries it, and logs the request itself.
    """
    name, address = principal_of(request).name, address_of(request.scope)
    return f"{name} at {address}" if name and address else address


def principal_fields(request: Request) -> dict[str, str]:
    """Return the same as fields of a log line."""
    return {"user": principal_of(request).name, "client": address_of(request.scope)}


@frozen
class Asker:
    """The sender of a request, for log lines."""

    text: str
    """See ``who_asks``; empty for a replica's parent, which logs the request itself."""
    fields: Mapping[str, str]

    @classmethod
    def of(cls, request: Request) -> Asker:
        """Return the sender of a request."""
        return cls(who_asks(request), principal_fields(request))


def address_of(scope: Scope) -> str:
    """Return the address of a request's sender; empty for a Unix socket."""
    client = scope.get("client")
    return str(client[0]) if client else ""


async def answered(ask: Callable[[], T]) -> T:
    """Run a query on a separate thread; a long one does not keep the process alive."""
    loop = asyncio.get_running_loop()
    future: asyncio.Future[T] = loop.create_future()

    def set_unless_over(set_it: Callable[[Any], None], given: Any) -> None:
        if not future.done():
            set_it(given)

    def run() -> None:
        end: tuple[Callable[[Any], None], Any]
        try:
            end = future.set_result, ask()
        except BaseException as problem:  # it is raised where the answer is awaited
            end = future.set_exception, problem
        with suppress(RuntimeError):  # the server has ended
            loop.call_soon_threadsafe(set_unless_over, *end)

    threading.Thread(target=run, name="wc-web-question", daemon=True).start()
    return await future


async def fields_of(request: Request) -> dict[str, Any]:
    """Return the JSON object in a request's body; raises UsageError for anything else."""
    body = b""
    async for part in request.stream():
        body += part
        if len(body) > _LARGEST_BODY:
            raise UsageError(f"the body has more than {_LARGEST_BODY} bytes")
    try:
        fields = json.loads(body)
    except (ValueError, RecursionError):
        fields = None
    if not isinstance(fields, dict):
        raise UsageError("the body is not a JSON object")
    return fields


def outcomes_module() -> str:
    """Return the table of outcomes for pages, as a JavaScript module."""
    rows = [
        {
            "counter": row.counter,
            "words": row.words,
            "step": row.step,
            "end": row.end,
            "beside_done": row.is_beside_done,
        }
        for row in OUTCOMES
    ]
    return f"export const OUTCOMES = {json.dumps(rows)};\n"


def error(status: HTTPStatus, text: str) -> JSONResponse:
    """Return an error response, which never quotes the request."""
    return Json({"error": text}, status)
