"""Databases that cannot be used, however long one waits: no such database, a wrong password.

Drivers tell little apart: libpq has no code for a connection that fails, only the server's text. A
text that is not known here, such as one in another language, counts as a database that is away.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Final

import sqlalchemy as sa
from attrs import frozen
from sqlalchemy.exc import SQLAlchemyError

from window_consumer.model.errors import RunError, UsageError


class UnusableDatabaseError(UsageError):
    """A database that somebody has to create, or another user or password."""


@frozen
class DatabaseUser:
    """Who uses a database, and where its address is written."""

    name: str
    """``once of WORKER`` or ``outbox``."""
    written_in: str


def reason_of(error: BaseException) -> str:
    """Return what the driver said."""
    return str(getattr(error, "orig", None) or error).strip()


def place_of(url: sa.URL) -> str:
    """Return a URL without passwords."""
    secret = [name for name in url.query if "password" in name.lower()]
    return url.difference_update_query(secret).render_as_string(hide_password=True)


def refusal_of(
    error: BaseException, url: sa.URL, user: DatabaseUser
) -> UnusableDatabaseError | RunError | None:
    """Return what to raise where a database fails: a RunError where that may pass.

    None for errors that are not a database's.
    """
    if not _is_database_error(error):
        return None
    remedy = _remedy_of(error)
    if remedy is None:
        return RunError(f"{user.name}: the database does not answer: {reason_of(error)}")
    reason = _file_trouble(url) if _sqlite_code_of(error) is not None else None
    return UnusableDatabaseError(
        f"{user.name}: the database {place_of(url)} cannot be used: {reason or reason_of(error)}\n"
        f"{remedy}, or correct {user.written_in}"
    )


def _is_database_error(error: BaseException) -> bool:
    """Return whether a database, its driver or the network failed: asyncpg raises OSError."""
    return isinstance(error, SQLAlchemyError | OSError) or _state_of(error) is not None


def _state_of(error: BaseException) -> str | None:
    for each in (error, getattr(error, "orig", None)):
        state = getattr(each, "sqlstate", None) or getattr(each, "pgcode", None)
        if state:
            return str(state)
    return None


def _sqlite_code_of(error: BaseException) -> int | None:
    code: int | None = getattr(getattr(error, "orig", None), "sqlite_errorcode", None)
    return code


_DATABASE: Final = "create the database (CREATE DATABASE ...)"
_LOGIN: Final = "let the server accept this user and password (CREATE ROLE ..., pg_hba.conf)"
_RIGHT: Final = "give this user the right (GRANT ... TO ...)"

_REMEDIES: Final[Mapping[str, str]] = {
    "3D000": _DATABASE,
    "28P01": _LOGIN,
    "28000": _LOGIN,
    "42501": _RIGHT,
}
"""What helps, by PostgreSQL's codes."""

_TEXTS: Final[Mapping[re.Pattern[str], str]] = {
    re.compile('database ".*" does not exist|no such database'): _DATABASE,
    re.compile(
        'authentication failed|no password supplied|role ".*" does not exist|no such user'
        "|no pg_hba.conf entry"
    ): _LOGIN,
    re.compile('permission denied for database ".*"'): _RIGHT,
}
"""What helps, by texts of PostgreSQL, libpq and PgBouncer."""

_ATTEMPT: Final = "connection to server "
"""What libpq says of each address that it has tried begins so."""

_SQLITE_REMEDIES: Final[Mapping[int, str]] = {
    8: "let this user write the file and its folder",
    14: "create the folder, let this user write it",
    26: "name another file",
}
"""What helps, by SQLite's codes SQLITE_READONLY, SQLITE_CANTOPEN and SQLITE_NOTADB."""


def _remedy_of(error: BaseException) -> str | None:
    """Return what helps; None where waiting may help, too."""
    code, state = _sqlite_code_of(error), _state_of(error)
    if code is not None:
        return _SQLITE_REMEDIES.get(code & 0xFF)
    if state is not None:
        return _REMEDIES.get(state)
    _, *attempts = reason_of(error).split(_ATTEMPT)
    # One of several addresses that is only away may be the right one.
    found = [_remedy_in(each) for each in attempts or [reason_of(error)]]
    return None if None in found else found[0]


def _remedy_in(text: str) -> str | None:
    return next((remedy for known, remedy in _TEXTS.items() if known.search(text)), None)


def _file_trouble(url: sa.URL) -> str | None:
    """Return what is wrong with a file's place, where that can be seen."""
    file = Path(url.database or "").absolute()
    if file.is_dir():
        return f"{file} is a folder"
    if not file.parent.exists():
        return f"there is no folder {file.parent}"
    return None
