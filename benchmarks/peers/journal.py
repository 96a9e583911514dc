"""The file in which a run records what it handled: a line of JSON, then columns of numbers.

Runners in other languages write it as well, so it is plain: ``{"count": N, "timed": true}`` and a
line feed, then N unsigned integers of 4 bytes, the numbers of the records in the order in which
they finished. If ``timed``, three columns of N signed integers of 8 bytes follow: when the client
handed each record over (0: not seen), when its handler began, and when it ended, in nanoseconds of
one steady clock. All are little-endian. A record that was handled twice is there twice.

Standard library only: it runs in every peer's environment.
"""

from __future__ import annotations

import json
import sys
from array import array
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Journal:
    """What a run handled, in the order of finishing. Times in nanoseconds, 0: unknown."""

    numbers: array[int]
    fetched: array[int]
    """As long as ``numbers`` in a timed run, else empty; the next two as well."""
    started: array[int]
    ended: array[int]

    @property
    def timed(self) -> bool:
        """Whether it has times."""
        return bool(self.started)

    @classmethod
    def of(cls, entries: Iterable[tuple[int, int, int, int]]) -> Journal:
        """Return a journal of (number, handed over, begun, ended) for each handled record."""
        columns = list(zip(*entries, strict=True)) or [()] * 4
        numbers, *times = columns
        return cls(array("I", numbers), *(array("q", column) for column in times))

    @classmethod
    def untimed(cls, numbers: Iterable[int]) -> Journal:
        """Return a journal without times."""
        return cls(array("I", numbers), array("q"), array("q"), array("q"))

    def write(self, path: Path) -> None:
        """Write the journal to a file."""
        header = json.dumps({"count": len(self.numbers), "timed": self.timed})
        with path.open("wb") as file:
            file.write(f"{header}\n".encode())
            for column in (self.numbers, self.fetched, self.started, self.ended):
                file.write(_little(column).tobytes())

    @classmethod
    def read(cls, path: Path) -> Journal:
        """Read a file. Raises ValueError where it is truncated."""
        with path.open("rb") as file:
            header = json.loads(file.readline())
            count = header["count"]
            timed = count if header["timed"] else 0
            columns = []
            for kind, length in (("I", count), ("q", timed), ("q", timed), ("q", timed)):
                column: array[int] = array(kind)
                data = file.read(length * column.itemsize)
                if len(data) < length * column.itemsize:
                    raise ValueError(f"{path} ends before its {count:,} records do")
                column.frombytes(data)
                columns.append(_little(column))
        return cls(*columns)


def _little(column: array[int]) -> array[int]:
    """Convert a column between this machine's byte order and the file's."""
    if sys.byteorder == "big":
        column = column[:]
        column.byteswap()
    return column
