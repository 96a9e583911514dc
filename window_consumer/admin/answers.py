"""Responses of the admin address, shared with the pages of other features."""

from __future__ import annotations

import json
from http import HTTPStatus
from pathlib import Path
from typing import Any, Final

from starlette.responses import JSONResponse

FILES: Final = Path(__file__).parent / "static"
"""The static files of all pages."""


class Json(JSONResponse):
    """A response in plain ASCII: foreign text may not be encodable as UTF-8."""

    def render(self, content: Any) -> bytes:
        """Return the JSON of a response."""
        return json.dumps(content, separators=(",", ":")).encode()


def error(status: HTTPStatus, text: str) -> JSONResponse:
    """Return an error response, which repeats nothing of the request."""
    return Json({"error": text}, status)
