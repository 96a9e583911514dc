"""The kind of a value that is a URL of a service."""

from __future__ import annotations

import re
from typing import Any
from urllib.parse import urlsplit

from attrs import evolve

from window_consumer.config import kinds
from window_consumer.config.kinds import ValueKind
from window_consumer.config.problems import InvalidError, Problem


def wrong_url(text: str, login: str) -> str | None:
    """Return the problem with a URL, or None.

    ``login`` names the place for a user and password instead.
    """
    if re.search(r"[\s\x00-\x1f\x7f]", text) or not text.isascii():
        return "has blanks or letters outside ASCII: write them as %XX"
    try:
        parts = urlsplit(text)
        port = parts.port
    except ValueError as error:
        return f"is not a URL ({error})"
    if parts.scheme not in {"http", "https"} or not parts.hostname or port == 0:
        return "does not begin with http:// or https:// and a host"
    if "@" in parts.netloc:
        return f"has a user or a password: write {login}"
    return "has a fragment, which is never sent to a server" if parts.fragment else None


def url(expected: str, login: str) -> ValueKind:
    """A URL; messages do not show a wrong one, which may hold a password."""

    def read(raw: Any) -> str:
        if not isinstance(raw, str):
            raise InvalidError(Problem((), f"is not {expected}"))
        wrong = wrong_url(raw, login)
        if wrong is not None:
            raise InvalidError(Problem((), wrong))
        return str(raw)

    return evolve(kinds.text(expected), name="URL", read=read)


def urls(expected: str, login: str) -> ValueKind:
    """A URL, or several of one service separated by commas; the value is a tuple."""
    one = url(expected, login)

    def read(raw: Any) -> tuple[str, ...]:
        if not isinstance(raw, str):
            return (one.read(raw),)
        return tuple(one.read(part.strip()).rstrip("/") for part in raw.split(","))

    return evolve(one, read=read, write=",".join)
