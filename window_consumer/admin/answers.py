"""Responses and routes of the admin address, shared with the pages of other features."""

from __future__ import annotations

import json
from http import HTTPStatus
from pathlib import Path
from typing import Any, Final

from starlette.responses import JSONResponse
from starlette.routing import Route

from window_consumer.model.outcome import OUTCOMES

FILES: Final = Path(__file__).parent / "static"
"""The static files of all pages."""


class Json(JSONResponse):
    """A response in plain ASCII: foreign text may not be encodable as UTF-8."""

    def render(self, content: Any) -> bytes:
        """Return the JSON of a response."""
        return json.dumps(content, separators=(",", ":")).encode()


class ReadingRoute(Route):
    """A route that changes nothing whatever its method: the role read suffices for it."""


def outcomes_module() -> str:
    """Return what pages need of the table of outcomes, as a module of JavaScript."""
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
    """Return an error response, which repeats nothing of the request."""
    return Json({"error": text}, status)
