"""What is known, and committed, of the unclean ends of one partition.

An end is unclean when the last commit does not say that the partition was given up in good order:
the process died, or lost the partition. The commits carry how often that happened at this place
(this next_offset), which record was started alone when it happened, and how often it happened on
which record. ``suspects`` starts them; this file counts.

* The first commit after an unclean end carries the count, and nothing starts before it is acked.
* From SUSPECT_AFTER ends at one place on, records are suspected: the first unfinished ones, at
  most FIRST_SUSPECTS, for about so many may have been in the slots. Where the process ends again
  after all of them were passed, four times as many, up to all that was in the log.
* Only the record that a commit named when the process ended is charged with the end.
* Giving the partition up makes the place unsuspicious where something was begun, all suspects
  have passed, and nothing runs. Members that come and go before that prove nothing. What a record
  is charged with stays until it is finished.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from attrs import frozen

from window_consumer.engine.commit_metadata import CommitNote

SUSPECT_AFTER = 2
"""Unclean ends at one place: one alone is a killed pod or a lost machine."""

FIRST_SUSPECTS = 64
"""Records taken one at a time at first, or all that the slots may hold where that is more."""

GROWTH = 4
"""How much longer the next list is, where the end came after all of them were passed."""

WATCH_S = 60.0
"""For so long after the suspects, and as far as a window reaches, an end counts as another one at
the same place; and so long commits are made at short intervals, so that little is run again."""

HURRY_S = 0.05
"""The interval of those commits."""

_UNSURE = -1
"""What the broker was told last is not known: a refused commit may have been taken."""


@frozen
class UncleanExits:
    """What a commit told of the ends before it, the last one included."""

    ends: int
    log_end: int
    """Where the log ended (exclusive): what came later was not there to kill."""
    passes: int = 0
    crashes: tuple[tuple[int, int], ...] = ()


def unclean_ends(note: CommitNote, log_end: int) -> UncleanExits | None:
    """Return what a commit gives cause to suspect; None for nothing.

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
    """Return how often the process ends on a record until that record leaves.

    First where it is among the first suspects, then where a whole window was running before it.
    """
    fewest = SUSPECT_AFTER + crash_attempts
    passes = 0
    while first_limit(slots) * GROWTH**passes < window_records:
        passes += 1
    return fewest, fewest + passes


def first_limit(slots: int) -> int:
    """Return how many records are suspected at first."""
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
        """Records have to be started alone, each named by a commit before."""
        self.limit = 0
        """How many suspects there are at most, beside the records with crashes."""
        if before.ends >= SUSPECT_AFTER:
            self.limit = first_limit(slots) * GROWTH**before.passes
        self.settled = False
        """Nothing is taken alone any more."""
        self.wanted: int | None = None
        """The offset that the broker should know as started alone."""
        self._ends = before.ends
        self._passes = before.passes
        self._place = place
        self._reach = place + window_records
        self._watch_until = now + WATCH_S
        self._told: int | None = _UNSURE
        self._telling: int | None = _UNSURE
        self.counted = False
        """The broker knows how many ends there were."""

    @property
    def unsaid(self) -> bool:
        """The broker has to be told something before anything goes on."""
        return not self.settled and (not self.counted or self._told != self.wanted)

    def names(self, offset: int) -> bool:
        """Tell whether the broker knows this record as started alone."""
        return self.counted and self._told == offset

    @property
    def names_nobody(self) -> bool:
        """The broker knows of no record that is started alone."""
        return self.counted and self._told is None

    def passed(self, now: float) -> None:
        """All suspects were started, and the process lives."""
        if self.limit:
            self._passes += 1
        self._watch_until = now + WATCH_S

    def absolve(self) -> None:
        """The partition is given up, and all that was begun has ended: its place is no worse."""
        self._ends = self._passes = 0

    def sending(
        self, next_offset: int, finished: Iterable[range], now: float, *, clean: bool
    ) -> dict[str, Any]:
        """Return what a commit says, as fields of its note; it is on its way after this."""
        gone = tuple(finished)
        wanted = None if clean else self.wanted
        if wanted is not None and wanted < next_offset:
            wanted = None
        self._telling = wanted
        if wanted != self._told:
            self._told = _UNSURE  # until it is answered the broker may know the one or the other
        watched = self._is_watched(next_offset, now)
        return {
            "unclean_ends": self._ends if watched or next_offset == self._place else 0,
            "suspect": wanted,
            "passes": self._passes if watched else 0,
            "crashes": tuple(
                (offset, times)
                for offset, times in sorted(self.crashes.items())
                if offset >= next_offset and not any(offset in run for run in gone)
            ),
        }

    def acked(self) -> None:
        """The broker took what was sent last."""
        self.counted = True
        self._told = self._telling

    def refused(self) -> None:
        """The broker did not take what was sent last, or did without saying so."""
        self._told = _UNSURE

    def in_hurry(self, next_offset: int, now: float) -> bool:
        """Tell whether commits should follow each other quickly."""
        return not self.settled or (next_offset <= self._reach and now < self._watch_until)

    def is_over(self, next_offset: int, now: float) -> bool:
        """Tell whether nothing has to be said or hurried any more."""
        return (
            self.settled
            and next_offset != self._place
            and not self.in_hurry(next_offset, now)
            and not any(offset >= next_offset for offset in self.crashes)
        )

    def _is_watched(self, next_offset: int, now: float) -> bool:
        return self._ends >= SUSPECT_AFTER and self.in_hurry(next_offset, now)
