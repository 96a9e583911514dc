"""The spool: batches in segments of a directory, until somebody has shipped them.

What was flushed survives the end of the process, however it comes, and that of the machine. Files
belong to the process that holds the lock beside them; those of processes that are gone are
anybody's. docs/wire.md has the files byte for byte.
"""

from __future__ import annotations

import logging
import os
import uuid
from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final
from zlib import crc32

from window_consumer.model.log_events import LogEvent
from window_consumer.runtime.log import Trouble
from window_consumer.runtime.segment_log.writer import (
    LogFullError,
    NotSyncedError,
    SegmentLog,
    SegmentRules,
    try_lock,
)
from window_consumer.trace.recording.exporter import Written

PREFIX: Final = "wc-trace-1-"
"""Begins the names of our files; the number is that of their format."""

OTHERS: Final = "wc-trace-*"

FILE_BYTES: Final = 4 * 1024 * 1024
"""A file is shipped, and let go of, as a whole: after a crash at most one comes twice."""


class Spool:
    """The files of this process. Owner: the writer's thread, but for ``finished``."""

    def __init__(self, directory: Path, max_bytes: int, logger: logging.Logger):
        self._directory = directory
        self._max_bytes = max_bytes
        self._owner = ""
        self._lock: int | None = None
        self._trouble = Trouble(
            logger, LogEvent.TRACE_RECOVERED, f"trace: {directory} takes events again"
        )
        self.finished: deque[Path] = deque()
        """Files that may be shipped, oldest first; whoever takes one out has to."""
        self._log = SegmentLog(
            self._path,
            SegmentRules(max_bytes=FILE_BYTES, fsync=True),
            lambda: self._max_bytes - self.held_bytes(),
            self.finished.append,
        )
        self.lost = 0
        """Events for which there was no room. Any thread may look."""

    def append(self, batches: Sequence[Written]) -> None:
        """Write batches down and have them on disk; what does not fit is lost and counted."""
        for begin, stop in _pieces(batches):
            self._append(batches[begin:stop])

    def _append(self, batches: Sequence[Written]) -> None:
        try:
            self._log.append(b"".join(_line(batch.data) for batch in batches))
        except NotSyncedError as error:
            where = f"trace: {self._directory}"
            self._trouble.begins(
                LogEvent.TRACE_FLUSH_FAILED, f"{where}: {_in_words(error)}; events may be lost"
            )
        except LogFullError:
            self._lose(batches, f"{self._directory} is full, trace.max_bytes is reached")
        except OSError as error:
            self._lose(batches, f"{self._directory}: {_in_words(error)}")
        else:
            self._trouble.ends()

    def _lose(self, batches: Sequence[Written], why: str) -> None:
        self.lost += sum(batch.events for batch in batches)
        self._trouble.begins(
            LogEvent.TRACE_EVENTS_LOST,
            f"trace: events are lost: {why}; the next events that are written tell how many",
        )

    @property
    def blocked_s(self) -> float:
        """For how long the disk has taken nothing, 0 while it does. Any thread may ask."""
        return self._trouble.seconds

    def held_bytes(self) -> int:
        """Return how much lies in the directory, of all processes."""
        sizes = (_size(path) for path in self._directory.glob(f"{PREFIX}*.spool"))
        return sum(sizes)

    def _path(self, number: int) -> Path:
        """Return the path of a file; its directory and this process's lock are there then."""
        if self._lock is not None and os.fstat(self._lock).st_nlink == 0:
            os.close(self._lock)  # somebody has deleted it, and everything else
            self._lock = None
        if self._lock is None:
            self._owner = uuid.uuid4().hex[:12]
            self._directory.mkdir(parents=True, exist_ok=True)
            self._lock = _made_and_locked(self._directory / f"{PREFIX}{self._owner}.lock")
        return self._directory / f"{PREFIX}{self._owner}-{number:09}.spool"

    @property
    def age_s(self) -> float | None:
        """For how long the file that is being written has been, None where there is none."""
        return self._log.age_s

    def finish(self) -> None:
        """End the file that is being written: it may be shipped."""
        self._log.close_segment()

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
                with suppress(OSError):
                    lock = try_lock(path)
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
                extra={"event": LogEvent.TRACE_FILES_IGNORED},
            )


def _line(data: bytes) -> bytes:
    return b"%08x %s\n" % (crc32(data), data)


def data_of(line: bytes) -> bytes | None:
    """Return the batch of a file's line; None where it is torn."""
    check, _, data = line.partition(b" ")
    return data if check == b"%08x" % crc32(data) else None


def _made_and_locked(path: Path) -> int:
    """Make a lock that nobody sees before it is held: it would be taken for one that is left."""
    hidden = path.with_name(f".{path.name}")
    lock = try_lock(hidden)
    if lock is None:
        raise FileExistsError(f"another process makes {hidden}")
    try:
        hidden.rename(path)
    except OSError:
        os.close(lock)
        raise
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
