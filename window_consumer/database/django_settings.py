"""The databases of Django's settings, as URLs of SQLAlchemy.

Django is optional: it is imported only if a database is one of Django's.
"""

from __future__ import annotations

from importlib.util import find_spec
from typing import Any, Final

import sqlalchemy as sa

from window_consumer.model.errors import UsageError
from window_consumer.plan.loading import search_current_directory

DJANGO: Final = "django"
"""The scheme of ``django://ALIAS``."""

_DRIVERS: Final = {"postgresql": "postgresql+psycopg", "sqlite": "sqlite"}
_OTHERS: Final = {"mysql", "oracle"}
"""Django's other databases."""
_NOT_OF_LIBPQ: Final = {"assume_role", "isolation_level", "pool", "server_side_binding"}
"""OPTIONS that Django keeps to itself; it passes all others to libpq."""


def require_django(what: str) -> None:
    """Raise UsageError, which names ``what``, without Django."""
    if find_spec("django") is None:
        raise UsageError(f"{what} needs Django: pip install 'window-consumer[django]'")


def url_of_alias(alias: str) -> sa.URL:
    """Return the URL of a database in Django's DATABASES.

    Raises UsageError for an unknown alias, for a database other than PostgreSQL (with psycopg 3) or
    SQLite, and without settings. Does not connect.
    """
    where = f"{DJANGO}://{alias}"
    require_django(where)
    from django.core.exceptions import ImproperlyConfigured  # noqa: PLC0415 - see above
    from django.db import connections  # noqa: PLC0415 - see above
    from django.db.utils import ConnectionDoesNotExist  # noqa: PLC0415 - see above

    search_current_directory()
    try:
        connection = connections[alias]
    except ConnectionDoesNotExist:
        known = ", ".join(sorted(connections)) or "none"
        raise UsageError(f"{where}: DATABASES has no {alias!r}; it has {known}") from None
    except (ImproperlyConfigured, ImportError) as error:
        vendor = _without_driver(alias)
        if vendor is not None:
            driver_of(vendor, where)
        raise UsageError(
            f"{where}: Django's settings cannot be loaded: {error}; set DJANGO_SETTINGS_MODULE, or"
            " call django.setup() first"
        ) from error
    return _url_of(connection, where)


def driver_of(vendor: str, where: str) -> str:
    """Return SQLAlchemy's name for the driver that Django uses. Raises UsageError."""
    if vendor not in _DRIVERS:
        raise UsageError(f"{where}: {vendor} is not supported; supported are {', '.join(_DRIVERS)}")
    if vendor == "postgresql" and find_spec("psycopg") is None:
        raise UsageError(f"{where}: only psycopg 3 is supported: pip install psycopg")
    return _DRIVERS[vendor]


def _without_driver(alias: str) -> str | None:
    """Return the vendor of a database that Django cannot load; None if that is not the reason.

    If we do not support the database, advice about the missing driver would be wrong.
    """
    from django.core.exceptions import ImproperlyConfigured  # noqa: PLC0415 - optional
    from django.db import connections  # noqa: PLC0415 - optional

    try:
        engine = str(connections.settings[alias]["ENGINE"])
    except (ImproperlyConfigured, ImportError):
        return None
    vendor = engine.rpartition(".")[2]
    return vendor if vendor in _OTHERS else None


def _url_of(connection: Any, where: str) -> sa.URL:
    driver, settings = driver_of(connection.vendor, where), connection.settings_dict
    name = str(settings["NAME"] or "")
    if connection.vendor == "sqlite":
        is_uri = name.startswith("file:")
        # The parameters of a URI belong to the query of the URL.
        path, _, query = name.partition("?")
        given = dict(each.split("=", 1) for each in query.split("&") if "=" in each)
        return sa.URL.create(
            driver,
            database=path if is_uri else name,
            query={**given, "uri": "true"} if is_uri else {},
        )
    options = {
        key: str(value)
        for key, value in settings.get("OPTIONS", {}).items()
        if key not in _NOT_OF_LIBPQ and isinstance(value, str | int)
    }
    return sa.URL.create(
        driver,
        username=settings["USER"] or None,
        password=settings["PASSWORD"] or None,
        host=settings["HOST"] or None,
        port=int(settings["PORT"]) if settings["PORT"] else None,
        database=name or None,
        query=options,
    )
