"""The file in which a run notes what it handled: a line of JSON, then columns of numbers.

Runners in other languages write it as well, so it is plain: ``{"count": N, "timed": true}`` and a
line feed, then N unsigned integers of 4 bytes, the numbers of the records in the order in which
they were finished, and if ``timed`` three times N signed integers of 8 bytes: when each was handed
over by the client (0: not seen), when its handler began, and when it ended, in nanoseconds of one
steady clock. All little-endian. A record that was handled twice is there twice.

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
    """What a run handled, in the order in which it finished. Times in nanoseconds, 0: unknown."""

    numbers: array[int]
    fetched: array[int]
    """As long as ``numbers`` where the run was timed, else empty; the next two as well."""
    started: array[int]
    ended: array[int]

    @property
    def timed(self) -> bool:
        """Whether it has times."""
        return bool(self.started)

    @classmethod
    def of(cls, entries: Iterable[tuple[int, int, int, int]]) -> Journal:
        """Make one of number, handed over, begun and ended for each handled record."""
        columns = list(zip(*entries, strict=True)) or [()] * 4
        numbers, *times = columns
        return cls(array("I", numbers), *(array("q", column) for column in times))

    @classmethod
    def untimed(cls, numbers: Iterable[int]) -> Journal:
        """Make one without times."""
        return cls(array("I", numbers), array("q"), array("q"), array("q"))

    def write(self, path: Path) -> None:
        """Write it into a file."""
        header = json.dumps({"count": len(self.numbers), "timed": self.timed})
        with path.open("wb") as file:
            file.write(f"{header}\n".encode())
            for column in (self.numbers, self.fetched, self.started, self.ended):
                file.write(_little(column).tobytes())

    @classmethod
    def read(cls, path: Path) -> Journal:
        """Read a file. Raises ValueError where it is cut short."""
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
    """Turn a column between this machine's byte order and the file's."""
    if sys.byteorder == "big":
        column = column[:]
        column.byteswap()
    return column
