"""Files that dead letters are exported to. They appear under their name when they are complete."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from itertools import islice
from pathlib import Path
from typing import IO, Any

from window_consumer.model.dead_letter import DeadLetter
from window_consumer.model.dead_letter_lines import line_of, told_by
from window_consumer.model.errors import UsageError

_ROWS = 10_000
"""Dead letters of one row group: some tens of megabytes at most, with records of usual size."""

NO_PYARROW = (
    "--format parquet needs pyarrow, which is not installed: pip install"
    " 'window-consumer[parquet]', or export JSON lines"
)


def write_lines(letters: Iterable[DeadLetter], output: Path | None) -> int:
    """Write dead letters as lines of JSON, to stdout without a file; return how many."""
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
    """Write dead letters as a Parquet file with bytes as they are; return how many.

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
    """Return the columns: names are those of the lines, times are timestamps in UTC."""
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
        **told_by(letter),
    }


@contextmanager
def _complete(output: Path) -> Iterator[Path]:
    """Lend a file beside the one that is wanted, and rename it when all is written.

    Raises UsageError for a file that is there, and where none can be written.
    """
    if output.exists():
        raise UsageError(f"--output {output}: the file is there already: choose another")
    unfinished = output.with_name(f".{output.name}.unfinished")
    try:
        yield unfinished
        unfinished.rename(output)
    except OSError as error:
        raise UsageError(f"--output {output}: {error.strerror}: choose another file") from error
    finally:
        unfinished.unlink(missing_ok=True)
