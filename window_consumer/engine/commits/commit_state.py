"""When and with what a partition is committed: offset and finished ranges from one snapshot."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from typing import Any

from window_consumer.engine.commits import commit_metadata as metadata
from window_consumer.engine.commits.commit_metadata import CommitNote
from window_consumer.engine.guards.crash_history import HURRY_S, CrashHistory
from window_consumer.model.membership import MembershipProof
from window_consumer.model.offset_ranges import Ranges
from window_consumer.model.protocols import Commit
from window_consumer.model.record import TopicPartition

MAX_BYTES_PER_S = 4096
"""Bytes of metadata written per partition and second: compacting the offsets topic costs I/O."""

REMEMBERED_COMMITS = 15
"""How many commits sent since the last ack are kept: the broker may have taken any of them."""

TIGHT_SHARE = 0.75
"""Above this share of the metadata budget a partition takes no new records."""


class CommitState:
    """The present and the next commit of one assignment. Owner: poll thread."""

    def __init__(
        self,
        name: TopicPartition,
        interval_s: float,
        topic_hash: int = 0,
        known_partitions: int = 0,
    ):
        self._name = name
        self._interval_s = interval_s
        self.topic_hash = topic_hash
        self.membership = MembershipProof()
        self.known_partitions = known_partitions
        self._acked: Commit | None = None
        self._in_flight: Commit | None = None
        self._is_clean = False
        """The commit in flight says that nothing is in progress."""
        self._known: Commit | None = None
        """The last commit that the broker is known to have accepted, or had at the start."""
        self._perhaps: deque[Commit] = deque(maxlen=REMEMBERED_COMMITS)
        """The last commits sent after it."""
        self._due_at = 0.0
        self._affordable_at = 0.0
        self.crash_history: CrashHistory | None = None
        """Set after an unclean end: commits record this about it until it is resolved."""
        self.changed = False
        """A record finished, or the position moved, since the last snapshot."""
        self.rests = False
        """Commits say that nothing of the partition is in progress."""
        self.shows_use = False
        """The broker has recorded that something may be in progress."""
        self._wakes = False
        """Records wait until the broker has recorded that."""
        self.sent_at = 0.0
        """When the commit in flight was made."""
        self.tight = False
        """The finished ranges nearly fill, or exceed, what a commit may carry."""
        self.is_complete = True
        """The last snapshot carries all finished ranges."""
        self.fired: int | None = None
        """Set if the guarantee's finished records may still wait, see ``CommitNote.fired``."""
        self.waiting = 0
        """How many of them wait."""
        self.delivered: Ranges = ()
        """Those that no longer wait although they are due later."""

    @property
    def in_flight(self) -> bool:
        """A commit was sent and not answered."""
        return self._in_flight is not None

    def awaits(self, commit: Commit) -> bool:
        """Return whether this commit is the one that was made and not answered."""
        return self._in_flight is commit

    @property
    def bytes_in_flight(self) -> int:
        """The length of the metadata in flight."""
        return 0 if self._in_flight is None else len(self._in_flight.metadata)

    def acknowledge_start(self, next_offset: int, text: str, *, shows_use: bool) -> None:
        """Record the commit before this assignment, so that it is not sent again."""
        self.shows_use = shows_use
        self._acked = self._known = Commit(self._name, next_offset, text)

    @property
    def perhaps_committed(self) -> frozenset[tuple[int, str]]:
        """The offset and metadata of each commit that the broker may hold now."""
        known = () if self._known is None else (self._known,)
        return frozenset((each.next_offset, each.metadata) for each in (*known, *self._perhaps))

    def rest(self) -> None:
        """Say from the next commit on that nothing of the partition is in progress."""
        self.rests = self.changed = True
        self._wakes = False

    def wake(self) -> None:
        """Say as soon as possible that something may be in progress."""
        self.rests, self._wakes = False, True

    def due(self, now: float) -> bool:
        """Return whether a commit should be made now."""
        if self._in_flight is not None:
            return False
        if self._awaits_ack:
            return now >= self._affordable_at
        return self.is_wanted and now >= self._due_at

    @property
    def is_wanted(self) -> bool:
        """There is something to commit."""
        if self.changed or self.membership.is_asked:
            return True
        return self._awaits_ack

    @property
    def _awaits_ack(self) -> bool:
        """Nothing starts before a commit is acked."""
        if self._wakes and not self.shows_use:
            return True
        return self.crash_history is not None and self.crash_history.awaits_commit

    def make(
        self,
        next_offset: int,
        finished: Iterable[range],
        now: float,
        max_bytes: int,
        *,
        clean: bool,
    ) -> Commit | None:
        """Take a snapshot; return None if the broker already has it."""
        finished = tuple(finished)
        clean = clean or self.rests
        crash_history, interval_s = self.crash_history, self._interval_s
        about_ends: dict[str, Any] = {}
        if crash_history is not None:
            about_ends = crash_history.sending(next_offset, finished, now, clean=clean)
            if crash_history.in_hurry(next_offset, now):
                interval_s = min(interval_s, HURRY_S)
            if crash_history.is_over(next_offset, now):
                self.crash_history = None
        note = CommitNote(
            next_offset=next_offset,
            topic_hash=self.topic_hash,
            clean=clean,
            finished=finished,
            known_partitions=self.known_partitions,
            fired=self.fired,
            waiting=self.waiting,
            delivered=self.delivered,
            **about_ends,
        )
        text, self.is_complete = metadata.encode(note, max_bytes)
        # If the broker accepts very little, the mandatory part may fill it without any range.
        is_tight = not self.is_complete or len(text) > TIGHT_SHARE * max_bytes
        self.tight = bool(finished) and is_tight
        self.changed = False
        self._affordable_at = now + len(text) / MAX_BYTES_PER_S
        self._due_at = max(now + interval_s, self._affordable_at)
        commit = Commit(self._name, next_offset, text)
        if commit == self._acked and not self.membership.is_asked:
            self.shows_use = not clean
            if crash_history is not None:
                crash_history.acked()
            return None
        # The broker may take a commit that is then reported as refused.
        self.shows_use = self.shows_use and not clean
        self._in_flight, self.sent_at, self._is_clean = commit, now, clean
        self.membership.sending()
        if commit not in self._perhaps:
            self._perhaps.append(commit)
        return commit

    def acked(self) -> Commit:
        """Record that the broker accepted the commit in flight, and return it."""
        commit, self._in_flight = self._in_flight, None
        assert commit is not None  # answers come only for a commit in flight
        self._acked = self._known = commit
        self.shows_use = not self._is_clean
        self.membership.accepted()
        self._perhaps.clear()
        if self.crash_history is not None:
            self.crash_history.acked()
        return commit

    def refused(self) -> None:
        """Record that the commit in flight failed; the next one covers at least as much.

        The broker may have accepted it all the same, so what it holds is now unknown.
        """
        self._acked = self._in_flight = None
        self.changed = True
        if self.crash_history is not None:
            self.crash_history.refused()
