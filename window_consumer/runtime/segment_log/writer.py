"""Appends records to segments, and detects whether the owner of segments is alive."""

from __future__ import annotations

import errno
import fcntl
import os
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from time import monotonic

from attrs import frozen


class LogFullError(OSError):
    """The log is full; nothing was written."""


class NotSyncedError(OSError):
    """The records are written, but a power failure may lose them."""


@frozen(kw_only=True)
class SegmentRules:
    """When a segment ends, and what an append waits for."""

    max_bytes: int
    """An append that reaches this size closes its segment."""
    max_age_s: float = float("inf")
    """Older segments get no more records."""
    fsync: bool = False
    """An append returns once the disk has the records, not only the page cache."""


class SegmentLog:
    """The segments that one thread writes. Owner: that thread; others may read its figures.

    ``path_of`` returns the path of a segment by its number, and may make its directory. ``room``
    returns how many bytes may still be written. ``on_close`` receives each closed segment.
    """

    def __init__(
        self,
        path_of: Callable[[int], Path],
        rules: SegmentRules,
        room: Callable[[], int],
        on_close: Callable[[Path], object] = lambda _path: None,
    ):
        self._path_of = path_of
        self._rules = rules
        self._room = room
        self._on_close = on_close
        self._file: int | None = None
        self._path = Path()
        self._size = 0
        self._opened_at = 0.0
        self.number = 0
        """The number of the last segment. Later ones get higher numbers."""
        self.appended_bytes = 0
        """The bytes that this writer has appended so far."""

    def append(self, records: bytes) -> None:
        """Write whole records, all or none of them.

        Raises LogFullError, NotSyncedError (the records are written) or another OSError (they are
        not). Earlier records are kept in each case.
        """
        if len(records) > self._room():
            raise LogFullError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        file = self._open()
        try:
            _write_all(file, records)
        except OSError:
            self._cut_off_torn_record(file)
            raise
        self._size += len(records)
        self.appended_bytes += len(records)
        try:
            if self._rules.fsync:
                os.fsync(file)
        except OSError as error:
            raise NotSyncedError(error.errno, error.strerror) from error
        finally:
            if self._size >= self._rules.max_bytes:
                self.close_segment()

    @property
    def age_s(self) -> float | None:
        """How long the current segment has been open; None without one."""
        return None if self._file is None else monotonic() - self._opened_at

    def close_segment(self) -> None:
        """Close the open segment, if any; the next append begins another one."""
        file, self._file = self._file, None
        if file is not None:
            os.close(file)
            self._on_close(self._path)

    def _open(self) -> int:
        file = self._file
        if file is not None and os.fstat(file).st_nlink == 0:  # the file was deleted
            os.close(file)
            self._file = file = None
        if file is not None and monotonic() - self._opened_at >= self._rules.max_age_s:
            self.close_segment()
            file = None
        if file is None:
            self.number += 1
            path = self._path_of(self.number)
            flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_APPEND | os.O_CLOEXEC
            self._file = file = os.open(path, flags, 0o600)
            self._path, self._size, self._opened_at = path, 0, monotonic()
        return file

    def _cut_off_torn_record(self, file: int) -> None:
        is_cut = False
        with suppress(OSError):
            os.ftruncate(file, self._size)
            is_cut = True
        # The next record must not continue a torn one, and some limits hold for one file. But a
        # full disk must not fill with empty files.
        if self._size or not is_cut:
            self.close_segment()


def _write_all(file: int, data: bytes) -> None:
    done = os.write(file, data)
    while done < len(data):
        done += os.write(file, data[done:])


def try_lock(path: Path) -> int | None:
    """Lock a file and return its descriptor; None while another process holds it.

    Creates a missing file. The lock shows whether the owner of segments is alive, because it ends
    with the process. Raises OSError.
    """
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        # The last holder may have deleted the file just before, which makes the lock meaningless.
        if os.path.samestat(os.fstat(descriptor), path.stat()):
            return descriptor
    except (BlockingIOError, FileNotFoundError):
        pass
    except OSError:
        os.close(descriptor)
        raise
    os.close(descriptor)
    return None
