"""Requests: a record's value with headers, or a batch as a JSON array; signed or not."""

from __future__ import annotations

import json
from base64 import b64encode
from collections.abc import Callable, Sequence
from hashlib import sha256
from typing import Any, NamedTuple

from window_consumer.model import traceparent
from window_consumer.model.headers import PREFIX
from window_consumer.model.record import Record
from window_consumer.push.cloudevents import BATCH_TYPE, event_headers, event_in_json
from window_consumer.push.config import HttpConfig
from window_consumer.push.request_headers import Pairs, RequestHeaders, id_of, timestamp_of
from window_consumer.push.signature import Signer


class Request(NamedTuple):
    """A request to post."""

    headers: Pairs
    body: bytes


class RequestMaker:
    """Makes requests of records. Owner: the event loop of a worker."""

    def __init__(self, config: HttpConfig, wall_ms: Callable[[], int]):
        self._fixed = list(config.headers.items())
        self._are_events = config.format == "cloudevents"
        self._headers = RequestHeaders(config.headers, self._are_events)
        self._signer = Signer(config.sign)
        self._wall_ms = wall_ms

    def of_record(self, record: Record) -> Request:
        """Return the request of one record."""
        headers, body = self._headers.of(record), record.value or b""
        if self._are_events:
            headers += event_headers(record)
        if self._signer.signs:
            headers += self._signer.headers(id_of(record), body, self._wall_ms())
        return Request(headers, body)

    def of_batch(self, records: Sequence[Record]) -> Request:
        """Return the request of several records, in their order."""
        kind, element = "application/json", _element
        if self._are_events:
            kind, element = BATCH_TYPE, event_in_json
        body = json.dumps(list(map(element, records)), separators=(",", ":")).encode()
        ids = "\n".join(map(id_of, records))
        name = f"sha256:{sha256(ids.encode()).hexdigest()}"
        fixed = [pair for pair in self._fixed if pair[0].lower() != "content-type"]
        headers = [
            *fixed,
            ("Content-Type", kind),
            ("Idempotency-Key", name),
            ("Wc-Batch", str(len(records))),
        ]
        span = traceparent.current()
        if span is not None:
            headers.append((traceparent.HEADER, span))
        headers += self._signer.headers(name, body, self._wall_ms())
        return Request(headers, body)


def _element(record: Record) -> dict[str, Any]:
    """Return a record as JSON; bytes that are not UTF-8 are in base64, under a separate name."""
    origin = record.origin
    found: dict[str, Any] = {
        "id": id_of(record),
        "topic": origin.topic,
        "partition": origin.partition,
        "offset": origin.offset,
        "timestamp": timestamp_of(record),
        "attempt": record.attempt,
        **_named("key", record.key),
        **_named("value", record.value),
    }
    for name, value in record.headers:
        if not name.startswith(PREFIX):
            for part, text in _named("headers", value).items():
                found.setdefault(part, {})[name] = text
    return found


def _named(name: str, value: bytes | None) -> dict[str, str | None]:
    if value is None:
        return {name: None}
    try:
        return {name: value.decode()}
    except UnicodeDecodeError:
        return {f"{name}_base64": b64encode(value).decode()}
