"""How every page of the admin address answers: what pages of other features use, too."""

from __future__ import annotations

import json
from collections.abc import Sequence
from http import HTTPStatus
from pathlib import Path
from typing import Any, Final, Protocol

from starlette.responses import JSONResponse
from starlette.routing import BaseRoute

FILES: Final = Path(__file__).parent / "static"
"""The files of all pages."""


class Pages(Protocol):
    """The pages of a feature. Owner: the server's event loop."""

    @property
    def is_there(self) -> bool:
        """Whether there is anything to ask."""

    def routes(self) -> Sequence[BaseRoute]:
        """Return what is answered where."""


class Json(JSONResponse):
    """An answer in ASCII alone: what strangers write need not be text that UTF-8 can hold."""

    def render(self, content: Any) -> bytes:
        """Return the JSON of an answer."""
        return json.dumps(content, separators=(",", ":")).encode()


def error(status: HTTPStatus, text: str) -> JSONResponse:
    """Return an answer that says what is wrong; nothing of the request is repeated."""
    return Json({"error": text}, status)
