"""Records for tests: values, keys and headers in convenient forms."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from window_consumer.model.errors import UsageError
from window_consumer.model.protocols import Headers
from window_consumer.model.record import Call, Record, TopicPartition
from window_consumer.testing.fakes.log import FakeMessage

Value = bytes | str | Mapping[str, Any] | Sequence[Any] | float | bool | None
Key = bytes | str | None
KeyOf = Key | Callable[[Any], Key]
"""The key of a record, or a function that returns it for the record's value."""

HeaderValues = Mapping[str, str | bytes | None] | Sequence[tuple[str, str | bytes | None]]


def make_record(  # noqa: PLR0913 - the parts of a record, by name
    value: Value = None,
    key: KeyOf = None,
    *,
    topic: str = "test",
    partition: int = 0,
    offset: int = 0,
    headers: HeaderValues = (),
    timestamp: int | None = None,
    attempt: int = 1,
    state: Any = None,
) -> Record:
    """Return a record, for a test that calls a handler directly.

    ``value``, ``key`` and ``headers`` are as for ``TestApp.send``, ``timestamp`` is in milliseconds
    since 1970. UsageError for a value that JSON cannot express.
    """
    key = key(value) if callable(key) else key
    message = FakeMessage(
        TopicPartition(topic, partition),
        offset,
        key.encode() if isinstance(key, str) else key,
        bytes_of(value),
        headers_of(headers),
        timestamp,
    )
    return Record.of(message, Call(attempt, state))


def bytes_of(value: Value) -> bytes | None:
    """Return a value's bytes on the wire; UsageError if JSON cannot express it."""
    if value is None or isinstance(value, bytes):
        return value
    if isinstance(value, str):
        return value.encode()
    try:
        return json.dumps(value).encode()
    except (TypeError, ValueError) as error:
        raise UsageError(
            f"a value is bytes, text, None, or JSON; {value!r} is none of these ({error})"
        ) from error


def headers_of(headers: HeaderValues) -> Headers:
    """Return headers as pairs of name and bytes."""
    pairs = headers.items() if isinstance(headers, Mapping) else headers
    return [(name, value.encode() if isinstance(value, str) else value) for name, value in pairs]
