"""The spool: batches in files of a directory, until somebody has shipped them.

What was flushed survives the end of the process, however it comes, and with fsync that of the
machine. Files belong to the process that holds the lock beside them; those of processes that are
gone are anybody's. docs/wire.md has the files byte for byte.
"""

from __future__ import annotations

import fcntl
import logging
import os
import uuid
from collections import deque
from collections.abc import Iterator, Sequence
from pathlib import Path
from time import monotonic
from typing import Final
from zlib import crc32

from window_consumer.runtime.log import Trouble
from window_consumer.trace.recording.exporter import Written

PREFIX: Final = "wc-trace-1-"
"""Begins the names of our files; the number is that of their format."""

OTHERS: Final = "wc-trace-*"

FILE_BYTES: Final = 4 * 1024 * 1024
"""A file is shipped, and let go of, as a whole: after a crash at most one comes twice."""


class SpoolFile:
    """A file that is being written. Owner: the writer's thread."""

    def __init__(self, path: Path):
        self.path = path
        self.size = 0
        self.born = monotonic()
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_APPEND | os.O_CLOEXEC
        self._file = os.open(path, flags, 0o600)

    def append(self, data: bytes) -> None:
        """Write lines, all or none of them as far as the disk lets us; raises OSError."""
        done = 0
        try:
            while done < len(data):
                done += os.write(self._file, data[done:])
        except OSError:
            os.ftruncate(self._file, self.size)
            raise
        self.size += len(data)

    def flush(self) -> None:
        """Return once the disk has it; raises OSError."""
        os.fsync(self._file)

    @property
    def is_gone(self) -> bool:
        """Somebody has deleted it."""
        return os.fstat(self._file).st_nlink == 0

    def close(self) -> None:
        """Let go of it."""
        os.close(self._file)


class Spool:
    """The files of this process. Owner: the writer's thread, but for ``finished``."""

    def __init__(self, directory: Path, max_bytes: int, logger: logging.Logger):
        self._directory = directory
        self._max_bytes = max_bytes
        self._owner = ""
        self._number = 0
        self._lock: int | None = None
        self._file: SpoolFile | None = None
        self._trouble = Trouble(logger, f"trace: {directory} takes events again")
        self.finished: deque[Path] = deque()
        """Files that may be shipped, oldest first; whoever takes one out has to."""
        self.lost = 0
        """Events for which there was no room. Any thread may look."""

    def append(self, batches: Sequence[Written]) -> None:
        """Write batches down and have them on disk; what does not fit is lost and counted."""
        for begin, stop in _pieces(batches):
            self._append(batches[begin:stop])
        file = self._file
        if file is None or not batches:
            return
        try:
            file.flush()
        except OSError as error:
            self._trouble.begins(f"trace: {file.path}: {_in_words(error)}; events may be lost")

    def _append(self, batches: Sequence[Written]) -> None:
        data = b"".join(_line(batch.data) for batch in batches)
        try:
            if self.held_bytes() + len(data) > self._max_bytes:
                self._lose(batches, f"{self._directory} is full, trace.max_bytes is reached")
                return
            file = self._open()
            file.append(data)
        except OSError as error:
            if self._file is not None and self._file.size:
                self.finish()  # some limits are those of one file
            self._lose(batches, f"{self._directory}: {_in_words(error)}")
            return
        self._trouble.ends()
        if file.size >= FILE_BYTES:
            self.finish()

    def _lose(self, batches: Sequence[Written], why: str) -> None:
        self.lost += sum(batch.events for batch in batches)
        self._trouble.begins(
            f"trace: events are lost: {why}; the next events that are written tell how many"
        )

    @property
    def blocked_s(self) -> float:
        """For how long the disk has taken nothing, 0 while it does. Any thread may ask."""
        return self._trouble.seconds

    def held_bytes(self) -> int:
        """Return how much lies in the directory, of all processes."""
        sizes = (_size(path) for path in self._directory.glob(f"{PREFIX}*.spool"))
        return sum(sizes)

    def _open(self) -> SpoolFile:
        if self._file is not None and self._file.is_gone:
            self._begin_anew()
        if self._lock is None:
            self._owner = uuid.uuid4().hex[:12]
            self._directory.mkdir(parents=True, exist_ok=True)
            self._lock = _made_and_locked(self._directory / f"{PREFIX}{self._owner}.lock")
        if self._file is None:
            self._number += 1
            name = f"{PREFIX}{self._owner}-{self._number:09}.spool"
            self._file = SpoolFile(self._directory / name)
        return self._file

    def _begin_anew(self) -> None:
        """Forget what was there: somebody has deleted it, the lock among it."""
        if self._file is not None:
            self._file.close()
        if self._lock is not None:
            os.close(self._lock)
        self._file = self._lock = None

    @property
    def open_since(self) -> float | None:
        """When the file was begun that is being written, None where there is none."""
        return None if self._file is None else self._file.born

    def finish(self) -> None:
        """End the file that is being written: it may be shipped."""
        file, self._file = self._file, None
        if file is not None:
            file.close()
            self.finished.append(file.path)

    def close(self) -> None:
        """Let go of everything; what is left is for whoever comes next."""
        self.finish()
        if self._lock is not None:
            if not any(self._directory.glob(f"{PREFIX}{self._owner}-*.spool")):
                (self._directory / f"{PREFIX}{self._owner}.lock").unlink(missing_ok=True)
            os.close(self._lock)
            self._lock = None


class Orphans:
    """Files of processes that are gone. Owner: the shipping thread."""

    def __init__(self, directory: Path, logger: logging.Logger):
        self._directory = directory
        self._logger = logger
        self._warned = False
        self._locks: dict[Path, int] = {}

    def adopt(self) -> list[Path]:
        """Take over what nobody holds any more; return all files that were taken, oldest first."""
        self._warn_of_others()
        locks = {lock.name: lock for lock in self._directory.glob(f"{PREFIX}*.lock")}
        for path in self._directory.glob(f"{PREFIX}*.spool"):
            name = f"{path.name.rpartition('-')[0]}.lock"
            locks.setdefault(name, self._directory / name)
        for path in locks.values():
            if path not in self._locks:
                lock = _try_to_lock(path)
                if lock is not None:
                    self._locks[path] = lock
        found: list[Path] = []
        for path in list(self._locks):
            files = sorted(self._directory.glob(f"{path.stem}-*.spool"))
            if not files:
                self._let_go(path)
            found += files
        return found

    def _let_go(self, path: Path) -> None:
        path.unlink(missing_ok=True)
        os.close(self._locks.pop(path))

    def close(self) -> None:
        """Leave what is left to whoever comes next."""
        for path in list(self._locks):
            if any(self._directory.glob(f"{path.stem}-*.spool")):
                os.close(self._locks.pop(path))
            else:
                self._let_go(path)

    def _warn_of_others(self) -> None:
        if self._warned:
            return
        strangers = [
            path.name for path in self._directory.glob(OTHERS) if not path.name.startswith(PREFIX)
        ]
        if strangers:
            self._warned = True
            self._logger.warning(
                "trace: %s has %d files of another version, such as %s: they are left alone; ship"
                " them with that version, or delete them",
                self._directory,
                len(strangers),
                min(strangers),
            )


def batches_in(path: Path) -> Iterator[bytes | None]:
    """Return the batches of a file; None stands for one that is torn. Raises OSError."""
    for line in path.read_bytes().split(b"\n"):
        if line:
            yield _data_of(line)


def _line(data: bytes) -> bytes:
    return b"%08x %s\n" % (crc32(data), data)


def _data_of(line: bytes) -> bytes | None:
    check, _, data = line.partition(b" ")
    return data if check == b"%08x" % crc32(data) else None


def _locked(path: Path) -> int:
    lock = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    return lock


def _made_and_locked(path: Path) -> int:
    """Make a lock that nobody sees before it is held: it would be taken for one that is left."""
    hidden = path.with_name(f".{path.name}")
    lock = _locked(hidden)
    try:
        hidden.rename(path)
    except OSError:
        os.close(lock)
        raise
    return lock


def _try_to_lock(path: Path) -> int | None:
    """Take the lock of a process that is gone; None where it lives, or somebody was faster."""
    try:
        lock = _locked(path)
    except OSError:
        return None
    try:
        same = os.fstat(lock).st_ino == path.stat().st_ino
    except OSError:
        same = False
    if not same:  # whoever had it has just let go of all
        os.close(lock)
        return None
    return lock


def _pieces(batches: Sequence[Written]) -> Iterator[tuple[int, int]]:
    """Cut batches into pieces of about the size of a file."""
    begin = size = 0
    for index, batch in enumerate(batches):
        size += len(batch.data)
        if size >= FILE_BYTES:
            yield begin, index + 1
            begin, size = index + 1, 0
    if begin < len(batches):
        yield begin, len(batches)


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except OSError:
        return 0  # it has just been shipped


def _in_words(error: OSError) -> str:
    return error.strerror or str(error)
