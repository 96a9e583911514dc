"""Records as CloudEvents: the HTTP binding in binary mode, and the JSON format for batches.

https://github.com/cloudevents/spec/blob/v1.0.2/cloudevents/bindings/http-protocol-binding.md. A
record that is itself an event, according to Kafka's binding, stays the same event.
"""

from __future__ import annotations

import json
import math
import re
from base64 import b64encode
from datetime import UTC, datetime, timedelta
from string import punctuation
from typing import Any, Final, NoReturn
from urllib.parse import quote

from window_consumer.model.record import Record
from window_consumer.push.request_headers import Pairs, content_type, id_of, timestamp_of

BATCH_TYPE: Final = "application/cloudevents-batch+json"

_STRUCTURED: Final = "application/cloudevents"
"""The type of a record whose value is an event with all its attributes."""

_OF_KAFKA: Final = "ce_"
"""The prefix of attribute names in a record's headers."""

_NAME: Final = re.compile(r"[a-z0-9]{1,64}")
_REQUIRED: Final = frozenset({"specversion", "id", "source", "type"})
_PLAIN: Final = punctuation.replace('"', "").replace("%", "")
_MOST_BYTES: Final = 4096
_MOST_ATTRIBUTES: Final = 24
"""The most bytes of all attributes in headers, names and values; see ``request_headers``."""

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


def event_headers(record: Record) -> Pairs:
    """Return the attributes of a record's event as headers; none if its value has them."""
    if content_type(record.headers).lower().startswith(_STRUCTURED):
        return []
    attributes = _attributes(record)
    found: Pairs = []
    left = _MOST_BYTES
    for name in sorted(attributes, key=lambda name: name not in _REQUIRED):
        text = attributes[name]
        pair = (f"ce-{name}", quote(text, safe=_PLAIN) if len(text) <= left else text)
        size = len(pair[0]) + len(pair[1])
        if size <= left and len(found) < _MOST_ATTRIBUTES:
            left -= size
            found.append(pair)
    return found


def event_in_json(record: Record) -> dict[str, Any]:
    """Return a record's event in the JSON format."""
    kind = content_type(record.headers).lower()
    value = record.value
    if kind.startswith(_STRUCTURED) and isinstance(found := _json(value), dict):
        return found
    event: dict[str, Any] = {**_attributes(record), "datacontenttype": kind}
    if value is None:
        return event
    media = kind.partition(";")[0].strip()
    is_json = media == "application/json" or media.endswith("+json")
    data = _json(value) if is_json else None
    if data is None:
        return {**event, "data_base64": b64encode(value).decode()}
    return {**event, "data": data}


def _json(value: bytes | None) -> Any:
    """Return the value of a JSON text; None for anything else, such as one with NaN."""
    try:
        return json.loads(value or b"", parse_constant=_refuse, parse_float=_finite)
    except (ValueError, RecursionError):
        return None


def _finite(number: str) -> float:
    """Return a float; ValueError if the number is too large: Python would print Infinity."""
    found = float(number)
    if not math.isfinite(found):
        raise ValueError(number)
    return found


def _refuse(constant: str) -> NoReturn:
    raise ValueError(constant)


def _attributes(record: Record) -> dict[str, str]:
    given = {
        name.removeprefix(_OF_KAFKA): value.decode("utf-8", "replace")
        for name, value in record.headers
        if name.startswith(_OF_KAFKA) and value is not None
    }
    attributes = {name: value for name, value in given.items() if _NAME.fullmatch(name)}
    if not attributes.keys() >= _REQUIRED:
        origin = record.origin
        attributes = {
            "specversion": "1.0",
            "id": id_of(record),
            "source": f"/{origin.topic}/{origin.partition}",
            "type": origin.topic,
        }
        timestamp = timestamp_of(record)
        if timestamp is not None:
            time = _EPOCH + timedelta(milliseconds=timestamp)
            attributes["time"] = time.isoformat().replace("+00:00", "Z")
    key = _text(record.key)
    if key:
        attributes.setdefault("partitionkey", key)
    return attributes


def _text(value: bytes | None) -> str | None:
    try:
        text = (value or b"").decode()
    except UnicodeDecodeError:
        return None
    return text if text.isprintable() else None
