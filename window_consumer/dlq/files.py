"""Files of exported dead letters, one JSON line each. Complete files are renamed into place.

A line holds the unchanged record (``position``, ``timestamp``, ``key``, ``value``, ``headers``) and
the parsed fields, for programs that do not parse headers. Bytes are text if they are UTF-8, else
``{"base64": "..."}``. Reading uses only the record.
"""

from __future__ import annotations

import json
import sys
from base64 import b64decode, b64encode
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from itertools import islice
from pathlib import Path
from typing import IO, Any

import attrs

from window_consumer.dlq.dead_letter import DeadLetter, read_dead_letter
from window_consumer.dlq.stored_record import StoredMessage
from window_consumer.model.errors import UsageError
from window_consumer.model.record import TopicPartition

_THE_RECORD = frozenset({"position", "timestamp", "key", "value", "headers", "own_headers"})


def as_values(letter: DeadLetter) -> dict[str, Any]:
    """Return the parsed fields of a dead letter, without the record itself, as plain values."""
    fields = attrs.asdict(letter, filter=lambda field, _: field.name not in _THE_RECORD)
    return {**fields, "written_by": letter.written_by.value}


def line_of(letter: DeadLetter) -> str:
    """Return a dead letter as one line of JSON, without the line break."""
    return json.dumps(
        {
            "position": letter.position._asdict(),
            "timestamp": letter.timestamp,
            "key": _written(letter.key),
            "value": _written(letter.value),
            "headers": [[name, _written(content)] for name, content in letter.headers],
            **as_values(letter),
        },
        separators=(",", ":"),
    )


def read_line(line: str) -> DeadLetter:
    """Return the dead letter of a line; raise ValueError if the line is invalid."""
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
        raise ValueError(f"not a line of an export: {type(error).__name__}: {error}") from error
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


_ROWS = 10_000
"""Dead letters per row group: tens of megabytes at most, with records of usual size."""

NO_PYARROW = (
    "--format parquet needs pyarrow, which is not installed: pip install"
    " 'window-consumer[parquet]', or export JSON lines"
)


def write_lines(letters: Iterable[DeadLetter], output: Path | None) -> int:
    """Write dead letters as JSON lines, to stdout if there is no file; return their number."""
    if output is None:
        return _lines(letters, sys.stdout)
    with _complete(output) as unfinished, unfinished.open("w", encoding="utf-8") as file:
        return _lines(letters, file)


def _lines(letters: Iterable[DeadLetter], file: IO[str]) -> int:
    written = 0
    for letter in letters:
        file.write(f"{line_of(letter)}\n")
        written += 1
    file.flush()
    return written


def write_parquet(letters: Iterable[DeadLetter], output: Path) -> int:
    """Write dead letters as a Parquet file with unchanged bytes; return their number.

    Raises UsageError without pyarrow, before anything is read or written.
    """
    try:
        import pyarrow as pa  # noqa: PLC0415 - an optional dependency
        import pyarrow.parquet as pq  # noqa: PLC0415 - as above
    except ImportError as error:
        raise UsageError(NO_PYARROW) from error
    schema = _schema(pa)
    written = 0
    rest = iter(letters)
    with _complete(output) as unfinished, pq.ParquetWriter(unfinished, schema) as writer:
        while rows := [_row(letter) for letter in islice(rest, _ROWS)]:
            writer.write_table(pa.Table.from_pylist(rows, schema=schema))
            written += len(rows)
    return written


def _schema(pa: Any) -> Any:
    """Return the columns: named like the JSON fields, with times as UTC timestamps."""
    text, number, time = pa.string(), pa.int64(), pa.timestamp("ms", tz="UTC")
    header = pa.struct([("name", text), ("value", pa.binary())])
    return pa.schema(
        [
            ("topic", text),
            ("partition", number),
            ("offset", number),
            ("timestamp", time),
            ("key", pa.binary()),
            ("value", pa.binary()),
            ("headers", pa.list_(header)),
            *((name, text) for name in _TEXTS),
            *((name, number) for name in _NUMBERS),
            *((name, time) for name in _TIMES),
        ]
    )


_TEXTS = (
    *("id", "written_by", "original_topic", "group", "handler", "app_version", "host"),
    *("reason", "error_class", "error_message", "error_stack", "fingerprint", "level", "value_ref"),
)
_NUMBERS = ("original_partition", "original_offset", "attempts", "redrives")
_TIMES = ("original_timestamp", "first_failure", "last_failure")


def _row(letter: DeadLetter) -> dict[str, Any]:
    return {
        **letter.position._asdict(),
        "timestamp": letter.timestamp,
        "key": letter.key,
        "value": letter.value,
        "headers": [{"name": name, "value": content} for name, content in letter.headers],
        **as_values(letter),
    }


@contextmanager
def _complete(output: Path) -> Iterator[Path]:
    """Yield a temporary path beside the output, and rename it once writing succeeds.

    Raises UsageError if the output exists or cannot be written.
    """
    if output.exists():
        raise UsageError(f"--output {output}: the file already exists: choose another")
    unfinished = output.with_name(f".{output.name}.unfinished")
    try:
        yield unfinished
        unfinished.rename(output)
    except OSError as error:
        raise UsageError(f"--output {output}: {error.strerror}: choose another file") from error
    finally:
        unfinished.unlink(missing_ok=True)
