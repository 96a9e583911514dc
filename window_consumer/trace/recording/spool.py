"""The spool: batches in segment files of a directory, until they are shipped.

Flushed data survives a crash of the process and of the machine. The process that holds the lock
beside the files owns them; any process may adopt the files of a dead one.
docs/wire-telemetry.md specifies every byte.
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
"""The prefix of our file names; the number is the version of the format."""

OTHERS: Final = "wc-trace-*"

FILE_BYTES: Final = 4 * 1024 * 1024
"""Files are shipped and deleted as a whole, so a crash repeats at most one."""


class Spool:
    """The files of this process. Owner: the writer's thread, except ``finished``."""

    def __init__(self, directory: Path, max_bytes: int, logger: logging.Logger):
        self._directory = directory
        self._max_bytes = max_bytes
        self._owner = ""
        self._lock: int | None = None
        self._trouble = Trouble(
            logger, LogEvent.TRACE_RECOVERED, f"trace: {directory} accepts events again"
        )
        self.finished: deque[Path] = deque()
        """Files that may be shipped, oldest first; the thread that takes a file must ship it."""
        self._log = SegmentLog(
            self._path,
            SegmentRules(max_bytes=FILE_BYTES, fsync=True),
            lambda: self._max_bytes - self.held_bytes(),
            self.finished.append,
        )
        self.lost = 0
        """Events for which there was no room. Any thread may read it."""

    def append(self, batches: Sequence[Written]) -> None:
        """Write batches to disk durably; batches that do not fit are lost and counted."""
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
            f"trace: events are lost: {why}; the next written events contain their number",
        )

    @property
    def blocked_s(self) -> float:
        """Return for how long the disk has refused writes, 0 if it works. Any thread may ask."""
        return self._trouble.seconds

    def held_bytes(self) -> int:
        """Return the size of the files of all processes in the directory."""
        sizes = (_size(path) for path in self._directory.glob(f"{PREFIX}*.spool"))
        return sum(sizes)

    def _path(self, number: int) -> Path:
        """Return the path of a file, after creating its directory and this process's lock."""
        if self._lock is not None and os.fstat(self._lock).st_nlink == 0:
            os.close(self._lock)  # the lock was deleted, with everything else
            self._lock = None
        if self._lock is None:
            self._owner = uuid.uuid4().hex[:12]
            self._directory.mkdir(parents=True, exist_ok=True)
            self._lock = _made_and_locked(self._directory / f"{PREFIX}{self._owner}.lock")
        return self._directory / f"{PREFIX}{self._owner}-{number:09}.spool"

    @property
    def age_s(self) -> float | None:
        """Return the age of the current file, None if there is none."""
        return self._log.age_s

    def finish(self) -> None:
        """Close the current file, so that it may be shipped."""
        self._log.close_segment()

    def close(self) -> None:
        """Release everything; a later process ships the rest."""
        self.finish()
        if self._lock is not None:
            if not any(self._directory.glob(f"{PREFIX}{self._owner}-*.spool")):
                (self._directory / f"{PREFIX}{self._owner}.lock").unlink(missing_ok=True)
            os.close(self._lock)
            self._lock = None


class Orphans:
    """Files of dead processes. Owner: the shipping thread."""

    def __init__(self, directory: Path, logger: logging.Logger):
        self._directory = directory
        self._logger = logger
        self._warned = False
        self._locks: dict[Path, int] = {}

    def adopt(self) -> list[Path]:
        """Adopt files without an owner; return all adopted files, oldest first."""
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
        """Leave the remaining files to a later process."""
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
                "trace: %s has %d files of another version, such as %s, which are ignored: ship"
                " them with that version, or delete them",
                self._directory,
                len(strangers),
                min(strangers),
                extra={"event": LogEvent.TRACE_FILES_IGNORED},
            )


def _line(data: bytes) -> bytes:
    return b"%08x %s\n" % (crc32(data), data)


def data_of(line: bytes) -> bytes | None:
    """Return the batch on a file's line; None if the line is incomplete."""
    check, _, data = line.partition(b" ")
    return data if check == b"%08x" % crc32(data) else None


def _made_and_locked(path: Path) -> int:
    """Create a lock under a hidden name until it is held, or it would look abandoned."""
    hidden = path.with_name(f".{path.name}")
    lock = try_lock(hidden)
    if lock is None:
        raise FileExistsError(f"another process is creating {hidden}")
    try:
        hidden.rename(path)
    except OSError:
        os.close(lock)
        raise
    return lock


def _pieces(batches: Sequence[Written]) -> Iterator[tuple[int, int]]:
    """Split batches into pieces of about the size of a file."""
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
        return 0  # it was just shipped


def _in_words(error: OSError) -> str:
    return error.strerror or str(error)
