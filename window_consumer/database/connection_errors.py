"""Connection errors that waiting does not fix, such as a missing database or a wrong password.

Drivers distinguish little: libpq has no code for a failed connection, only the server's text. An
unknown text, for example in another language, counts as an unavailable database.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Final

import sqlalchemy as sa
from attrs import frozen
from sqlalchemy.exc import SQLAlchemyError

from window_consumer.database.dialects.dialect import sqlite_code_of
from window_consumer.model.errors import RunError, UsageError


class UnusableDatabaseError(UsageError):
    """The database does not exist, or the user, password or privileges are wrong."""

    code = "WC140"


@frozen
class DatabaseUser:
    """The user of a database, and where its URL is configured."""

    name: str
    """``once of WORKER`` or ``outbox``."""
    written_in: str


def reason_of(error: BaseException) -> str:
    """Return the driver's message."""
    return str(getattr(error, "orig", None) or error).strip()


def place_of(url: sa.URL) -> str:
    """Return the URL without passwords."""
    secret = [name for name in url.query if "password" in name.lower()]
    return url.difference_update_query(secret).render_as_string(hide_password=True)


def refusal_of(
    error: BaseException, url: sa.URL, user: DatabaseUser
) -> UnusableDatabaseError | RunError | None:
    """Return the error to raise for a database error: a RunError if it may be transient.

    None for errors that do not come from the database.
    """
    if not _is_database_error(error):
        return None
    remedy = remedy_of(error)
    if remedy is None:
        return RunError(f"{user.name}: the database is not available: {reason_of(error)}")
    reason = _file_problem(url) if sqlite_code_of(error) is not None else None
    return UnusableDatabaseError(
        f"{user.name}: the database {place_of(url)} cannot be used: {reason or reason_of(error)}\n"
        f"{remedy}, or correct {user.written_in}"
    )


def _is_database_error(error: BaseException) -> bool:
    """Return whether the database, its driver or the network failed; asyncpg raises OSError."""
    return isinstance(error, SQLAlchemyError | OSError) or _state_of(error) is not None


def _state_of(error: BaseException) -> str | None:
    for each in (error, getattr(error, "orig", None)):
        state = getattr(each, "sqlstate", None) or getattr(each, "pgcode", None)
        if state:
            return str(state)
    return None


_DATABASE: Final = "create the database (CREATE DATABASE ...)"
_LOGIN: Final = "allow this user and password on the server (CREATE ROLE ..., pg_hba.conf)"
_RIGHT: Final = "grant this user the privilege (GRANT ... TO ...)"

_REMEDIES: Final[Mapping[str, str]] = {
    "3D000": _DATABASE,
    "28P01": _LOGIN,
    "28000": _LOGIN,
    "42501": _RIGHT,
}
"""Remedies by PostgreSQL's SQLSTATE."""

_TEXTS: Final[Mapping[re.Pattern[str], str]] = {
    re.compile('database ".*" does not exist|no such database'): _DATABASE,
    re.compile(
        'authentication failed|no password supplied|role ".*" does not exist|no such user'
        "|no pg_hba.conf entry"
    ): _LOGIN,
    re.compile('permission denied for database ".*"'): _RIGHT,
}
"""Remedies by messages of PostgreSQL, libpq and PgBouncer."""

_ATTEMPT: Final = "connection to server "
"""The prefix of libpq's message for each address that it tried."""

_SQLITE_REMEDIES: Final[Mapping[int, str]] = {
    8: "give this user write access to the file and its folder",
    14: "create the folder, give this user write access",
    26: "name another file",
}
"""Remedies by SQLite's codes SQLITE_READONLY, SQLITE_CANTOPEN and SQLITE_NOTADB."""


def remedy_of(error: BaseException) -> str | None:
    """Return the remedy; None if waiting may help, too."""
    code, state = sqlite_code_of(error), _state_of(error)
    if code is not None:
        return _SQLITE_REMEDIES.get(code & 0xFF)
    if state is not None:
        return _REMEDIES.get(state)
    _, *attempts = reason_of(error).split(_ATTEMPT)
    # If there are several addresses, one that is merely unavailable may be the right one.
    found = [_remedy_in(each) for each in attempts or [reason_of(error)]]
    return None if None in found else found[0]


def _remedy_in(text: str) -> str | None:
    return next((remedy for known, remedy in _TEXTS.items() if known.search(text)), None)


def _file_problem(url: sa.URL) -> str | None:
    """Return the problem with the file's path, if one is visible."""
    file = Path(url.database or "").absolute()
    if file.is_dir():
        return f"{file} is a folder"
    if not file.parent.exists():
        return f"the folder {file.parent} does not exist"
    return None
