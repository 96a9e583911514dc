"""The files of a wheel: one append-only file for each second.

All wheels of a process together have at most 64 files open. Appended bytes stay in memory until
``flush``; a killed process loses them and reads them from Kafka again. Each file begins with its
format version.
"""

from __future__ import annotations

import os
from collections import OrderedDict
from collections.abc import Iterator
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Final

from attrs import define

from window_consumer.delay.wheel.waiting_record import (
    DamagedError,
    PlaceInFile,
    UnknownVersionError,
    places,
)

MAX_OPEN: Final = 64
_LONGEST_BUFFER: Final = 16 * 1024
"""A slot with more bytes in memory than this is written at once: a second may have any number of
records."""

_MOST_BUFFERED: Final = 2 * 1024**2
"""The most bytes in memory of all slots of a wheel."""

_LONGEST_LOADED: Final = 8 * 1024**2
"""The longest slot kept in memory: a second's records are read one by one as they are due."""

_SUFFIX: Final = ".slot"

VERSION: Final = 1
"""The version of the file format. Raise it whenever the bytes of a record change."""

_MARK: Final = b"wcs"
_HEAD: Final = _MARK + bytes([VERSION])


class OpenFiles:
    """Descriptors of slot files; the least recently used ones are closed. Owner: one thread."""

    def __init__(self, most: int = MAX_OPEN):
        self._most = most
        self._open: OrderedDict[str, int] = OrderedDict()

    def __len__(self) -> int:
        return len(self._open)

    def descriptor(self, path: str) -> int:
        """Return a descriptor for reading and appending; creates a missing file."""
        found = self._open.get(path)
        if found is not None:
            self._open.move_to_end(path)
            return found
        if len(self._open) >= self._most:
            os.close(self._open.popitem(last=False)[1])
        flags = os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC
        found = self._open[path] = os.open(path, flags, 0o600)
        return found

    def close(self, path: str) -> None:
        """Close a file if it is open."""
        found = self._open.pop(path, None)
        if found is not None:
            os.close(found)


@define
class _Slot:
    """The file of a second."""

    written: int = 0
    buffer: bytearray | None = None
    contents: bytes = b""
    """The beginning of the file, if it was loaded."""


class SlotFiles:
    """The slots of one partition, by second. Owner: one thread at a time."""

    def __init__(self, directory: Path, files: OpenFiles):
        self._directory = directory
        self._files = files
        self._slots: dict[int, _Slot] = {}
        self._dirty: set[int] = set()
        self._buffered = 0

    def use(self, files: OpenFiles) -> None:
        """Use these shared open files from now on."""
        self.close()
        self._files = files

    def found(self) -> Iterator[int]:
        """Yield the seconds with files of an earlier process, and take those files over."""
        for path in self._directory.glob(f"*{_SUFFIX}"):
            second = int(path.stem)
            self._slots[second] = _Slot(path.stat().st_size)
            yield second

    def append(self, second: int, data: bytes) -> tuple[int, bool]:
        """Append bytes; return their position and whether they are the first of their slot."""
        slot = self._slots.get(second)
        is_new = slot is None
        if slot is None:
            slot = self._slots[second] = _Slot()
        if slot.buffer is None:
            slot.buffer = bytearray() if slot.written else bytearray(_HEAD)
            self._buffered += len(slot.buffer)
            self._dirty.add(second)
        at = slot.written + len(slot.buffer)
        slot.buffer += data
        self._buffered += len(data)
        if len(slot.buffer) >= _LONGEST_BUFFER:
            self._write(second)
        elif self._buffered >= _MOST_BUFFERED:
            self.flush()
        return at, is_new

    def flush(self) -> None:
        """Write the bytes in memory, so that a killed process does not lose them."""
        for second in list(self._dirty):
            self._write(second)

    def _write(self, second: int) -> None:
        slot = self._slots[second]
        if slot.buffer is None:
            return
        descriptor = self._files.descriptor(self._path(second))
        view = memoryview(slot.buffer)
        done = 0
        while done < len(view):
            done += os.write(descriptor, view[done:])
        slot.written += done
        self._buffered -= done
        view.release()
        slot.buffer = None
        self._dirty.discard(second)

    def checked(self, second: int) -> Iterator[PlaceInFile]:
        """Yield the places of a slot's records.

        Raises UnknownVersionError for a file in another format and DamagedError for an incomplete
        record.
        """
        slot = self._slots[second]
        if slot.written:  # a process killed while it creates a file leaves an empty one
            found = self.read(second, 0, min(len(_HEAD), slot.written))
            if found != _HEAD:
                raise UnknownVersionError(_version_in(found))
        yield from self._places(second, checked=True)

    def load(self, second: int) -> Iterator[PlaceInFile]:
        """Load a slot and yield its places; it stays in memory until deleted unless it is too long.

        Raises DamagedError for a record that is cut off; others are not checked.
        """
        self._write(second)
        slot = self._slots[second]
        if slot.written <= _LONGEST_LOADED:
            slot.contents = self.read(second, 0, slot.written)
        return self._places(second, checked=False)

    def _places(self, second: int, *, checked: bool) -> Iterator[PlaceInFile]:
        size = self._slots[second].written
        read = partial(self.read, second)
        return places(read, len(_HEAD), size, checked=checked)

    def read(self, second: int, at: int, length: int) -> bytes:
        """Return bytes of a slot; raise DamagedError if some are missing."""
        slot = self._slots[second]
        if at + length <= len(slot.contents):
            return slot.contents[at : at + length]
        if at + length > slot.written:
            self._write(second)
        data = os.pread(self._files.descriptor(self._path(second)), length, at)
        if len(data) != length:
            raise DamagedError
        return data

    def delete(self, second: int) -> None:
        """Delete the slot of a second that has fired."""
        slot = self._slots.pop(second)
        if slot.buffer is not None:
            self._buffered -= len(slot.buffer)
            self._dirty.discard(second)
        self._files.close(self._path(second))
        with suppress(FileNotFoundError):  # no bytes of it were written
            Path(self._path(second)).unlink()

    def delete_all(self) -> None:
        """Delete all slots."""
        for second in list(self._slots):
            self.delete(second)

    def close(self) -> None:
        """Close all files; bytes still in memory are lost."""
        for second in self._slots:
            self._files.close(self._path(second))

    def _path(self, second: int) -> str:
        return f"{self._directory}/{second}{_SUFFIX}"


def _version_in(head: bytes) -> int | None:
    """Return the version in a file's head; None if it is not such a head."""
    is_ours = len(head) == len(_HEAD) and head.startswith(_MARK)
    return head[-1] if is_ours else None
