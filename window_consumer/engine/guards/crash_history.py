"""The unclean ends of one partition, known and committed.

An end is unclean if the process died or lost the partition, that is, unless the last commit says
that the partition was released in good order. Commits carry how often that happened at this
next_offset, which record was running alone, and how often the process ended on each record.
``crash_suspects`` starts the suspects; this module counts.

* The first commit after an unclean end carries the count, and nothing starts before it is acked.
* After SUSPECT_AFTER ends at one offset, records are suspects: the first unfinished ones, at most
  FIRST_SUSPECTS, because about that many may have been in the slots. If the process ends again
  after all of them have passed, there are four times as many, up to everything in the log.
* Only the record that a commit named when the process ended is charged with the end.
* Releasing the partition clears the count if something was started, all suspects have passed, and
  nothing is running. Members that come and go before that prove nothing. A record stays charged
  until it is finished.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from attrs import frozen

from window_consumer.engine.commits.commit_metadata import CommitNote

SUSPECT_AFTER = 2
"""How many unclean ends at one offset make suspects: a single one is a killed pod or a lost
machine."""

FIRST_SUSPECTS = 64
"""How many records are suspects at first, or twice the slots if that is more."""

GROWTH = 4
"""The growth of the number of suspects if the process ends after all of them have passed."""

WATCH_S = 60.0
"""For this long after the suspects, and within a window's length, an end counts as another one at
the same offset. Commits follow at short intervals in that time, so that little runs again."""

HURRY_S = 0.05
"""The interval of those commits."""

_UNSURE = -1
"""What the broker recorded last is unknown: it may have accepted a commit reported as refused."""


@frozen
class UncleanExits:
    """A commit's record of the ends before it, including the last one."""

    ends: int
    log_end: int
    """Where the log ended (exclusive): later records cannot have caused the end."""
    passes: int = 0
    crashes: tuple[tuple[int, int], ...] = ()


def unclean_ends(note: CommitNote, log_end: int) -> UncleanExits | None:
    """Return the unclean ends that a commit shows; None if nothing is suspicious.

    ``log_end`` (exclusive) is the log's end now.
    """
    ends = note.unclean_ends + (not note.clean)
    crashes = dict(note.crashes)
    if note.suspect is not None and not note.clean:
        crashes[note.suspect] = crashes.get(note.suspect, 0) + 1
    open_crashes = sorted(
        (offset, times)
        for offset, times in crashes.items()
        if offset < log_end and not any(offset in run for run in note.finished)
    )
    if not (ends or open_crashes) or _first_unfinished(note) >= log_end:
        return None
    return UncleanExits(ends, log_end, note.passes, tuple(open_crashes))


def most_ends(crash_attempts: int, slots: int, window_records: int) -> tuple[int, int]:
    """Return how often the process ends on a record before that record leaves.

    The first number is for one of the first suspects, the second for one at the end of a full
    window.
    """
    fewest = SUSPECT_AFTER + crash_attempts
    passes = 0
    while first_limit(slots) * GROWTH**passes < window_records:
        passes += 1
    return fewest, fewest + passes


def first_limit(slots: int) -> int:
    """Return how many records are suspects at first."""
    return max(FIRST_SUSPECTS, 2 * slots)


def _first_unfinished(note: CommitNote) -> int:
    if note.finished and note.finished[0].start == note.next_offset:
        return note.finished[0].stop
    return note.next_offset


class CrashHistory:
    """The unclean ends of one assignment of one partition. Owner: poll thread."""

    def __init__(
        self, before: UncleanExits, place: int, window_records: int, slots: int, now: float
    ):
        self.crashes = dict(before.crashes)
        """How often the process ended on a record, by offset."""
        self.log_end = before.log_end
        self.careful = before.ends >= SUSPECT_AFTER or bool(before.crashes)
        """Records must start alone, each named by a commit beforehand."""
        self.limit = 0
        """The most suspects, apart from the records with crashes."""
        if before.ends >= SUSPECT_AFTER:
            self.limit = first_limit(slots) * GROWTH**before.passes
        self.settled = False
        """No more records are started alone."""
        self.wanted: int | None = None
        """The offset that the broker should record as started alone."""
        self._ends = before.ends
        self._passes = before.passes
        self._place = place
        self._reach = place + window_records
        self._watch_until = now + WATCH_S
        self._acked: int | None = _UNSURE
        self._sent: int | None = _UNSURE
        self.counted = False
        """The broker has recorded the number of ends."""

    @property
    def awaits_commit(self) -> bool:
        """A commit must be acked before anything proceeds."""
        return not self.settled and (not self.counted or self._acked != self.wanted)

    def names(self, offset: int) -> bool:
        """Return whether the broker has recorded this record as started alone."""
        return self.counted and self._acked == offset

    @property
    def names_nobody(self) -> bool:
        """The broker has recorded no record as started alone."""
        return self.counted and self._acked is None

    def passed(self, now: float) -> None:
        """Record that all suspects were started and the process is alive."""
        if self.limit:
            self._passes += 1
        self._watch_until = now + WATCH_S

    def absolve(self) -> None:
        """Clear the counts: the partition is released, and all started calls have ended."""
        self._ends = self._passes = 0

    def sending(
        self, next_offset: int, finished: Iterable[range], now: float, *, clean: bool
    ) -> dict[str, Any]:
        """Return a commit's fields about ends; the commit counts as sent from now on."""
        ranges = tuple(finished)
        wanted = None if clean else self.wanted
        if wanted is not None and wanted < next_offset:
            wanted = None
        self._sent = wanted
        if wanted != self._acked:
            self._acked = _UNSURE  # the broker may have either value until the commit is answered
        watched = self._is_watched(next_offset, now)
        return {
            "unclean_ends": self._ends if watched or next_offset == self._place else 0,
            "suspect": wanted,
            "passes": self._passes if watched else 0,
            "crashes": tuple(
                (offset, times)
                for offset, times in sorted(self.crashes.items())
                if offset >= next_offset and not any(offset in run for run in ranges)
            ),
        }

    def acked(self) -> None:
        """Record that the broker accepted the last commit."""
        self.counted = True
        self._acked = self._sent

    def refused(self) -> None:
        """Record that the broker refused the last commit, or may have accepted it."""
        self._acked = _UNSURE

    def in_hurry(self, next_offset: int, now: float) -> bool:
        """Return whether commits should follow each other quickly."""
        return not self.settled or (next_offset <= self._reach and now < self._watch_until)

    def is_over(self, next_offset: int, now: float) -> bool:
        """Return whether nothing remains to be recorded or hurried."""
        return (
            self.settled
            and next_offset != self._place
            and not self.in_hurry(next_offset, now)
            and not any(offset >= next_offset for offset in self.crashes)
        )

    def _is_watched(self, next_offset: int, now: float) -> bool:
        return self._ends >= SUSPECT_AFTER and self.in_hurry(next_offset, now)
