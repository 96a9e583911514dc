"""Dead letters as lines of JSON: what ``dlq export`` writes, and reading it back.

A line has the record as it is (``position``, ``timestamp``, ``key``, ``value``, ``headers``), and
beside it what its headers say, for programs that do not want to know about headers. Bytes are text
where they are UTF-8, else ``{"base64": "..."}``. Reading needs the record alone.
"""

from __future__ import annotations

import json
from base64 import b64decode, b64encode
from typing import Any

import attrs

from window_consumer.model.dead_letter import DeadLetter, read_dead_letter
from window_consumer.model.record import TopicPartition
from window_consumer.model.stored_message import StoredMessage

_THE_RECORD = frozenset({"position", "timestamp", "key", "value", "headers", "own_headers"})


def told_by(letter: DeadLetter) -> dict[str, Any]:
    """Return what is known about a dead letter beside the record itself, as plain values."""
    fields = attrs.asdict(letter, filter=lambda field, _: field.name not in _THE_RECORD)
    return {**fields, "written_by": letter.written_by.value}


def line_of(letter: DeadLetter) -> str:
    """Return a dead letter as one line of JSON, without the line's end."""
    return json.dumps(
        {
            "position": letter.position._asdict(),
            "timestamp": letter.timestamp,
            "key": _written(letter.key),
            "value": _written(letter.value),
            "headers": [[name, _written(content)] for name, content in letter.headers],
            **told_by(letter),
        },
        separators=(",", ":"),
    )


def read_line(line: str) -> DeadLetter:
    """Return the dead letter of a line; raises ValueError that says what is wrong with it."""
    try:
        record = json.loads(line)
        position = record["position"]
        message = StoredMessage(
            name=TopicPartition(str(position["topic"]), int(position["partition"])),
            at=int(position["offset"]),
            key_bytes=_read(record["key"]),
            value_bytes=_read(record["value"]),
            header_pairs=[(str(name), _read(content)) for name, content in record["headers"]],
            timestamp_ms=None if record["timestamp"] is None else int(record["timestamp"]),
        )
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise ValueError(f"no line of an export: {type(error).__name__}: {error}") from error
    return read_dead_letter(message)


def _written(data: bytes | None) -> Any:
    if data is None:
        return None
    try:
        return data.decode()
    except UnicodeDecodeError:
        return {"base64": b64encode(data).decode()}


def _read(written: Any) -> bytes | None:
    if written is None:
        return None
    if isinstance(written, str):
        return written.encode()
    return b64decode(written["base64"], validate=True)
