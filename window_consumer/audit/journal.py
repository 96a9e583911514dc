"""The local log of counts: segments in a directory, kept until they are shipped.

Each process locks its own directory for its whole life. Written counts survive a kill -9: they are
in the page cache before ``write`` returns. A count that cannot be written is lost, and the next
written count carries the number of its records.

    <directory>/<incarnation>/lock
    <directory>/<incarnation>/<client>.<number>.log    lines of counts, see ``audit.count``
"""

from __future__ import annotations

import errno
import os
import re
import secrets
from collections.abc import Mapping, Sequence
from pathlib import Path
from time import monotonic, sleep
from typing import Any, Final

from attrs import frozen

from window_consumer.audit.count import AuditCount, encode
from window_consumer.model.errors import UsageError
from window_consumer.model.log_events import LogEvent
from window_consumer.runtime.log import own_logger
from window_consumer.runtime.segment_log.writer import (
    LogFullError,
    SegmentLog,
    SegmentRules,
    try_lock,
)

SEGMENT_BYTES: Final = 1 << 20
SEGMENT_S: Final = 10.0
"""How long a file gets records. Only whole files can be deleted."""

MOST_BYTES: Final = 256 << 20
"""The most that one writer keeps while nothing can be shipped: days of counts."""

SAY_AGAIN_S: Final = 60.0
_AGAIN_S: Final = 0.01

_LOG = own_logger()


@frozen
class Identity:
    """The process that counts."""

    app: str
    instance: str
    incarnation: str


def new_incarnation(wall_ms: int) -> str:
    """Return a new name for a run of a process. Later names sort behind earlier ones."""
    return f"{wall_ms:013d}-{secrets.token_hex(4)}"


_INCARNATION: Final = re.compile(r"[0-9]{13}-[0-9a-f]{8}")


def is_journal_directory(path: Path) -> bool:
    """Return whether this is a process's directory, complete with its lock."""
    return _INCARNATION.fullmatch(path.name) is not None


def is_begun(path: Path) -> bool:
    """Return whether a process is creating this directory, or died while creating it."""
    return path.name.startswith(".") and is_journal_directory(path.with_name(path.name[1:]))


class JournalDirectory:
    """The directory of this run of the process, locked until ``close`` or the process ends."""

    def __init__(self, directory: Path, incarnation: str):
        """Create and lock the directory; UsageError if that fails."""
        self.path = directory / incarnation
        try:
            directory.mkdir(parents=True, exist_ok=True)
            self._lock = self._made(directory / f".{incarnation}")
        except OSError as error:
            why = error.strerror or str(error)
            raise UsageError(
                f"audit.directory: cannot write to {directory}: {why}; choose a directory that"
                " this process may write to and that outlives it"
            ) from error

    def _made(self, hidden: Path) -> int | None:
        """Create it under a hidden name: unlocked, it would seem to belong to a dead process."""
        while True:
            hidden.mkdir(exist_ok=True)
            try:
                descriptor = lock(hidden)
            except FileNotFoundError:
                continue  # another process took it for the directory of a dead process
            if descriptor is None:
                sleep(_AGAIN_S)  # another process is about to remove it
                continue
            try:
                hidden.rename(self.path)
            except FileNotFoundError:  # as above
                os.close(descriptor)
            else:
                return descriptor

    def close(self) -> None:
        """Unlock the directory, and remove it if it is empty."""
        if self._lock is not None:
            abandon(self.path, self._lock)
            self._lock = None


def lock(path: Path) -> int | None:
    """Lock a process's directory; None if its process lives. Raises OSError."""
    return try_lock(path / "lock")


def abandon(path: Path, descriptor: int) -> None:
    """Unlock a process's directory; remove it if only the lock is left."""
    try:
        if [each.name for each in path.iterdir()] == ["lock"]:
            (path / "lock").unlink()
            path.rmdir()
    except OSError as error:
        if error.errno not in {errno.ENOENT, errno.ENOTEMPTY}:  # else another process removes it
            _LOG.warning(
                "audit: %s could not be removed: %s",
                path,
                error,
                extra={"event": LogEvent.AUDIT_DIRECTORY_LEFT},
            )
    finally:
        os.close(descriptor)


class CountJournal:
    """One thread's log of counts. Owner: that thread; other threads may read the figures."""

    def __init__(
        self,
        journal_directory: Path,
        client: str,
        identity: Identity,
        *,
        fsync: bool = False,
        most_bytes: int = MOST_BYTES,
    ):
        self.client = client
        self._journal_directory = journal_directory
        self._identity = identity
        self._most_bytes = most_bytes
        rules = SegmentRules(max_bytes=SEGMENT_BYTES, max_age_s=SEGMENT_S, fsync=fsync)
        self._log = SegmentLog(self._path, rules, self._room)
        self.sequence = 0
        """Sequence number of the last count."""
        self.trimmed_bytes = 0
        """Bytes of files that the shipper has deleted."""
        self.lost = 0
        """Records with unwritten counts, which no count has reported yet."""
        self.lost_in_all = 0
        self._said_at = float("-inf")

    @property
    def written_bytes(self) -> int:
        """How many bytes were written so far."""
        return self._log.appended_bytes

    def write(self, rows: Sequence[Mapping[str, Any]], *, final: bool = False) -> bool:
        """Append counts, each given by its fields, as one line; return whether they are kept."""
        counts = [self._count(row, final=final) for row in rows]
        if not counts:
            return True
        line = encode(counts) + b"\n"
        records = sum(count.count for count in counts)
        try:
            self._log.append(line)
        except OSError as error:
            self.lost += records
            self.lost_in_all += records
            what = f"counts cannot be written, {self.lost_in_all} records are uncounted so far"
            why = error.strerror or str(error)
            if isinstance(error, LogFullError):
                why = f"{self._most_bytes} bytes are already waiting to be shipped"
            self._complain(LogEvent.AUDIT_COUNTS_LOST, what, why)
            return False
        self.lost = 0
        return True

    def missed(self, records: int, why: str) -> None:
        """Report, with the next count, records that the owner could not track."""
        self.lost += records
        self._complain(
            LogEvent.AUDIT_SENDS_MISSED, f"{records} records were sent without being tracked", why
        )

    def begin_after(self, number: int) -> None:
        """Write to files after this one."""
        self._log.number = number

    def close(self) -> None:
        """Close the log; nothing may be appended afterwards."""
        self._log.close_segment()

    def _count(self, row: Mapping[str, Any], *, final: bool) -> AuditCount:
        self.sequence += 1
        identity = self._identity
        return AuditCount(
            client=self.client,
            incarnation=identity.incarnation,
            sequence=self.sequence,
            app=identity.app,
            instance=identity.instance,
            final=final,
            lost=self.lost,
            **row,
        )

    def _path(self, number: int) -> Path:
        return self._journal_directory / segment_name(self.client, number)

    def _room(self) -> int:
        return self._most_bytes - self.written_bytes + self.trimmed_bytes

    def _complain(self, event: LogEvent, what: str, why: str) -> None:
        now = monotonic()
        if now - self._said_at >= SAY_AGAIN_S:
            self._said_at = now
            _LOG.warning(
                "audit: %s: %s (%s); the next counts will report it",
                self.client,
                what,
                why,
                extra={"event": event},
            )


_SEGMENT: Final = re.compile(r"(?P<client>.+)\.(?P<number>[0-9]{8})\.log")


def segment_name(client: str, number: int) -> str:
    """Return the name of one of a writer's files."""
    return f"{client}.{number:08d}.log"


def segments(journal_directory: Path) -> list[tuple[str, int, Path]]:
    """Return a directory's files as (client, number, path), oldest first."""
    found = []
    for path in journal_directory.iterdir():
        match = _SEGMENT.fullmatch(path.name)
        if match:
            found.append((match["client"], int(match["number"]), path))
    return sorted(found)
