"""Tells a decoder that could not ask from a value that cannot be decoded.

A deserialiser of a schema registry has to fetch each schema once. Where the registry does not
answer, nothing is known about the value: its record is tried again, as when a handler fails.
"""

from __future__ import annotations

import socket
from collections.abc import Iterator

_BUILT_IN = (ConnectionError, TimeoutError, socket.gaierror)
# By name, because only who has asked with one of these libraries has imported it.
_CLASSES = {
    ("httpx", "TransportError"),
    ("httpx2", "TransportError"),
    ("requests", "ConnectionError"),
    ("requests", "Timeout"),
    ("urllib3", "HTTPError"),
    ("aiohttp", "ClientConnectionError"),
    ("confluent_kafka", "OAuthTokenError"),
}
_ABOUT_THE_VALUE = {404, 422}
"""The registry has answered: there is no such schema, or it is none."""


def is_out_of_reach(error: BaseException) -> bool:
    """Tell whether whoever had to be asked about a value did not answer, or not to us."""
    return any(map(_is_no_answer, _causes(error)))


def _causes(error: BaseException) -> Iterator[BaseException]:
    cause: BaseException | None = error
    seen: list[BaseException] = []
    while cause is not None and cause not in seen:
        seen.append(cause)
        yield cause
        cause = cause.__cause__


def _is_no_answer(error: BaseException) -> bool:
    if isinstance(error, _BUILT_IN):
        return True
    for kind in type(error).__mro__:
        package = kind.__module__.partition(".")[0]
        if (package, kind.__name__) in _CLASSES:
            return True
        if (package, kind.__name__) == ("confluent_kafka", "SchemaRegistryError"):
            return getattr(error, "http_status_code", None) not in _ABOUT_THE_VALUE
    return False
