"""A producer's uncounted sends, in memory that outlives its process.

A table in a shared mapping of a file. A row is filled before its record is sent, and emptied when
the journal has the record's count. Stores to the mapping survive a kill -9 without a system call.
After the process ends, another one reads its table: sends without an ack (unknown), and acked
records that were not counted yet.
"""

from __future__ import annotations

import errno
import mmap
import os
import struct
import threading
from collections import deque
from collections.abc import Iterator, Sequence
from pathlib import Path
from time import monotonic
from typing import Final

from attrs import frozen

from window_consumer.audit.sums import id_hash

AGAIN_S: Final = 1.0
"""How long to wait after the disk had no room before trying again."""

ROWS: Final = 16_384
"""Rows of one file. The client's own queue holds 100,000 records."""

MOST_FILES: Final = 64
"""Room for a million sends without an ack; the table does not track further ones."""

_ROW_BYTES: Final = 96
_FIELDS: Final = struct.Struct("<BBHIqQiqQ")
"""The state, the id's length, topic, size, timestamp, hash of a long id, partition, offset and
sequence.
"""
_ACK: Final = struct.Struct("<iq")
_ACK_AT: Final = 24
_SEQUENCE: Final = struct.Struct("<Q")
_SEQUENCE_AT: Final = 36
_ID_AT: Final = 44
LONGEST_ID: Final = _ROW_BYTES - _ID_AT

FREE, SENT, ACKED, COUNTING = range(4)


@frozen
class Send:
    """A record that was sent."""

    topic: str
    size: int
    timestamp_ms: int
    record_id: bytes
    """As much of the id as the row has room for; empty if the record has none."""
    hash: int
    """Hash of the whole id if the row lacked room for it, else 0."""
    is_acked: bool
    partition: int
    offset: int
    sequence: int | None
    """The journal's sequence when counting began; None if it has not."""


class Sends:
    """One producer's table. ``sent`` and ``acked`` may run on any thread."""

    def __init__(
        self, journal_directory: Path, client: str, group: str = "", again_s: float = AGAIN_S
    ):
        """Create the table in this process's directory; if the disk is full, add rows later."""
        self._stem = journal_directory / client
        self._group = group
        self._again_s = again_s
        self.trouble = ""
        """Why the last rows could not be added; empty if the table is at its limit."""
        self._again_at = float("-inf")
        self._maps: list[mmap.mmap] = []
        self._free: deque[int] = deque()
        self._topics: dict[str, int] = {}
        self._known: list[str] = []
        """Topic names, by number."""
        self._growing = threading.Lock()
        self._grow()

    def sent(self, topic: str, size: int, timestamp_ms: int, record_id: bytes) -> int | None:
        """Fill and return a row for a record that is about to be sent; None if there is no room.

        Raises the error of a name or number that does not fit.
        """
        try:
            row = self._free.popleft()
        except IndexError:
            with self._growing:
                if not self._free and not self._grow():
                    return None
            return self.sent(topic, size, timestamp_ms, record_id)
        try:
            number = self._topics.get(topic)
            if number is None:
                number = self._name(topic)
            table, at = self._place(row)
            hashed = 0
            if len(record_id) > LONGEST_ID:
                hashed, record_id = id_hash(record_id), record_id[:LONGEST_ID]
            head = (FREE, len(record_id), number, size, timestamp_ms, hashed)
            _FIELDS.pack_into(table, at, *head, -1, -1, 0)
            table[at + _ID_AT : at + _ID_AT + len(record_id)] = record_id
            table[at] = SENT
        except BaseException:
            self._free.append(row)
            raise
        return row

    def acked(self, row: int, partition: int, offset: int) -> None:
        """Mark a record as acked."""
        table, at = self._place(row)
        _ACK.pack_into(table, at + _ACK_AT, partition, offset)
        table[at] = ACKED

    def counting(self, row: int, sequence: int) -> Send:
        """Mark a record as being counted, with the journal at ``sequence``; return it."""
        table, at = self._place(row)
        send = _read(table, at, self._known)
        _SEQUENCE.pack_into(table, at + _SEQUENCE_AT, sequence)
        table[at] = COUNTING
        return send

    def free(self, row: int) -> None:
        """Free a row: its record was counted, or was not sent."""
        table, at = self._place(row)
        table[at] = FREE
        self._free.append(row)

    def taken(self) -> list[int]:
        """Return the rows that are not free, ascending."""
        return sorted(set(range(len(self._maps) * ROWS)).difference(self._free))

    def close(self) -> None:
        """Close the table; remove its files if no row is taken."""
        holds_something = len(self._free) < len(self._maps) * ROWS
        for table in self._maps:
            table.close()
        self._maps.clear()
        if not holds_something:
            for path in files(self._stem.parent, self._stem.name):
                path.unlink(missing_ok=True)

    def _place(self, row: int) -> tuple[mmap.mmap, int]:
        return self._maps[row // ROWS], row % ROWS * _ROW_BYTES

    def _grow(self) -> bool:
        number = len(self._maps)
        if number >= MOST_FILES or monotonic() < self._again_at:
            return False
        path = self._stem.with_name(f"{self._stem.name}.{number:04d}.sends")
        try:
            if not number:
                _append(self._names_path, f"{self._group}\n", 0)
            self._maps.append(_mapped(path))
        except OSError as error:
            self.trouble = error.strerror or str(error)
            self._again_at = monotonic() + self._again_s
            return False
        self._free.extend(range(number * ROWS, (number + 1) * ROWS))
        self.trouble = ""
        return True

    @property
    def _names_path(self) -> Path:
        return self._stem.with_name(f"{self._stem.name}.topics")

    def _name(self, topic: str) -> int:
        with self._growing:
            if topic not in self._topics:
                _append(self._names_path, f"{topic}\n", self._names_path.stat().st_size)
                self._known.append(topic)
                self._topics[topic] = len(self._known) - 1
            return self._topics[topic]


def _mapped(path: Path) -> mmap.mmap:
    """Create a file of rows and map it; raise OSError and leave no file if there is no room."""
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        # Without this a full disk would kill the process at a later store.
        os.posix_fallocate(descriptor, 0, ROWS * _ROW_BYTES)
        return mmap.mmap(descriptor, ROWS * _ROW_BYTES)
    except OSError:
        path.unlink()
        raise
    finally:
        os.close(descriptor)


def _append(path: Path, line: str, at: int) -> None:
    """Write a whole line at offset ``at``, the file's end, or nothing and raise OSError."""
    whole = line.encode()
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        is_whole = os.pwrite(descriptor, whole, at) == len(whole)
        if not is_whole:
            os.ftruncate(descriptor, at)
    finally:
        os.close(descriptor)
    if not is_whole:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def _read(table: mmap.mmap | bytes, at: int, topics: Sequence[str]) -> Send:
    fields = _FIELDS.unpack_from(table, at)
    state, length, topic, size, timestamp_ms, hashed, partition, offset, sequence = fields
    return Send(
        topic=topics[topic] if topic < len(topics) else "",
        size=size,
        timestamp_ms=timestamp_ms,
        record_id=bytes(table[at + _ID_AT : at + _ID_AT + length]),
        hash=hashed,
        is_acked=state in {ACKED, COUNTING},
        partition=partition,
        offset=offset,
        sequence=sequence if state == COUNTING else None,
    )


def left_behind(journal_directory: Path, client: str) -> Iterator[Send]:
    """Yield the sends in the tables of a dead process; raises OSError."""
    _, *topics = _names(journal_directory, client)
    for path in files(journal_directory, client):
        if path.suffix == ".sends":
            table = path.read_bytes()
            for at in range(0, len(table) - _ROW_BYTES + 1, _ROW_BYTES):
                if table[at] in {SENT, ACKED, COUNTING}:
                    yield _read(table, at, topics)


def group_of(journal_directory: Path, client: str) -> str:
    """Return the group for which a producer wrote copies; empty for other producers."""
    return _names(journal_directory, client)[0]


def _names(journal_directory: Path, client: str) -> list[str]:
    path = journal_directory / f"{client}.topics"
    return path.read_text(encoding="utf-8").splitlines() if path.exists() else [""]


def clients(journal_directory: Path) -> list[str]:
    """Return the clients with a table in a process's directory."""
    return sorted({path.name.rsplit(".", 2)[0] for path in journal_directory.glob("*.sends")})


def files(journal_directory: Path, client: str) -> list[Path]:
    """Return the files of a producer's table."""
    names = journal_directory / f"{client}.topics"
    tables = [p for p in journal_directory.glob("*.sends") if p.name.rsplit(".", 2)[0] == client]
    return [*sorted(tables), *([names] if names.exists() else [])]
