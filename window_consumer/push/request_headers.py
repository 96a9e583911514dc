"""The headers of a request: the origin of its record, and the record's own headers.

Values that are not printable ASCII are sent in base64, under a separate name: `Wc-Base64-Key`
instead of `Wc-Key`. All names and limits are a contract with the services, see docs/push.md.
"""

from __future__ import annotations

import re
from base64 import b64encode
from collections.abc import Callable, Mapping
from functools import lru_cache
from hashlib import sha256
from typing import Final
from urllib.parse import quote

from window_consumer.model import header_values, traceparent
from window_consumer.model.headers import ORIGINAL_TIMESTAMP, PREFIX
from window_consumer.model.record import Record
from window_consumer.model.record_identity import given_id, id_text

TOKEN: Final = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
"""A valid header name."""

OURS: Final = re.compile(
    r"(wc-.*|ce-.*|webhook-.*|host|content-length|content-encoding|transfer-encoding|connection"
    r"|expect|idempotency-key|traceparent|tracestate)$",
    re.IGNORECASE,
)
"""The header names that a configuration cannot set."""

MOST_HEADER_BYTES: Final = 8192
"""The most bytes of a record's headers in a request, names and values: Node.js accepts 16 KiB
including all others, nginx 8 KiB in one line."""

_MOST_HEADERS: Final = 48
"""The most headers of a record: Apache, gunicorn and Python's http.server accept 100 in all."""

_MOST_VALUE_BYTES: Final = 512
"""The most bytes of a type or a trace state; the W3C requires as much for the latter."""

MOST_KEY_BYTES: Final = 4096
MOST_ID_LETTERS: Final = 255

_ASIDE: Final = frozenset({traceparent.HEADER, "tracestate", "content-type"})
"""Record headers that become request headers of the same name."""

Pairs = list[tuple[str, str]]


class RequestHeaders:
    """Makes the headers of requests. Owner: the event loop of a worker."""

    def __init__(self, fixed: Mapping[str, str], are_events: bool):  # noqa: FBT001 - made once
        """``fixed`` come from the configuration; CloudEvents have their attributes elsewhere."""
        self._fixed = list(fixed.items())
        self._aside: tuple[str, ...] = (PREFIX, "ce_") if are_events else (PREFIX,)
        self._has_type = any(name.lower() == "content-type" for name in fixed)
        self._may_have_span = traceparent.contexts()

    def of(self, record: Record) -> Pairs:
        """Return the headers of a record's request; names may repeat, as in the record."""
        pairs = record.headers
        found = [*self._fixed, *_position(record)]
        if not self._has_type:
            found.append(("Content-Type", content_type(pairs)))
        if record.value is None:
            found.append(("Wc-Tombstone", "true"))
        found.extend(_trace(pairs, self._may_have_span))
        if pairs:
            found.extend(_users(pairs, self._aside))
        return found


def _position(record: Record) -> Pairs:
    origin, timestamp = record.origin, timestamp_of(record)
    given = given_id(record.headers)
    name = _printable_id(str(origin) if given is None else id_text(given))
    found = [
        ("Wc-Topic", origin.topic),
        ("Wc-Partition", str(origin.partition)),
        ("Wc-Offset", str(origin.offset)),
        ("Wc-Attempt", str(record.attempt)),
        ("Wc-Id", name),
        ("Idempotency-Key", name),
    ]
    if timestamp is not None:
        found.append(("Wc-Timestamp", str(timestamp)))
    key = record.key
    if key is not None:
        if len(key) > MOST_KEY_BYTES:
            found.append(("Wc-Key-Omitted", str(len(key))))
        else:
            found.append(_pair("Key", key))
    return found


def timestamp_of(record: Record) -> int | None:
    """Return the timestamp of a record's first delivery."""
    first = header_values.count(record.header(ORIGINAL_TIMESTAMP)) if record.is_copy else None
    return record.timestamp if first is None else first


def id_of(record: Record) -> str:
    """Return a record's id in printable ASCII, or the digest of a longer or non-ASCII id."""
    return _printable_id(record.id)


def _printable_id(text: str) -> str:
    if len(text) <= MOST_ID_LETTERS and text.isascii() and text.isprintable() and " " not in text:
        return text
    return f"sha256:{sha256(text.encode()).hexdigest()}"


def content_type(pairs: list[tuple[str, bytes | None]]) -> str:
    """Return the content type that a record declares for its value."""
    for name, value in reversed(pairs):
        if name.lower() == "content-type" and value and (text := _short(value)):
            return text
    return "application/octet-stream"


def _trace(pairs: list[tuple[str, bytes | None]], may_have_span: Callable[[], object]) -> Pairs:
    """Return the current span, or else the one that the record names."""
    span = traceparent.current() if may_have_span() else None
    if span is not None:
        return [("traceparent", span)]
    own = dict(pairs) if pairs else {}
    if traceparent.read(own.get(traceparent.HEADER)) is None:
        return []
    names = (traceparent.HEADER, "tracestate")
    values = [(name, _short(own.get(name) or b"")) for name in names]
    return [(name, value) for name, value in values if value]


def _users(pairs: list[tuple[str, bytes | None]], aside: tuple[str, ...]) -> Pairs:
    found: Pairs = []
    left, omitted = MOST_HEADER_BYTES, 0
    for name, value in pairs:
        if name.startswith(aside) or name in _ASIDE:
            continue
        is_full = len(found) == _MOST_HEADERS
        if is_full or len(name) + len(value or b"") > left:  # do not encode megabytes
            omitted += 1
            continue
        pair = _pair(_named(name), value or b"")
        size = len(pair[0]) + len(pair[1])
        if size > left:
            omitted += 1
            continue
        left -= size
        found.append(pair)
    if omitted:
        found.append(("Wc-Headers-Omitted", str(omitted)))
    return found


def _pair(name: str, value: bytes) -> tuple[str, str]:
    text = _printable(value)
    if text is None:
        return f"Wc-Base64-{name}", b64encode(value).decode()
    return f"Wc-{name}", text


def _short(value: bytes) -> str | None:
    return _printable(value) if len(value) <= _MOST_VALUE_BYTES else None


def _printable(value: bytes) -> str | None:
    """Return text that a header can hold; None for other bytes."""
    if not value.isascii():
        return None
    text = value.decode()
    return text if text.isprintable() and text == text.strip() else None


@lru_cache(maxsize=1024)
def _named(name: str) -> str:
    """Return a header's name after our prefix; characters not allowed in names become %XX."""
    return "Header-" + (name if TOKEN.fullmatch(name) else quote(name, safe="!#$&'*+^`|"))
