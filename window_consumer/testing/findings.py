"""Results that a test can assert: outcomes, copies, committed offsets."""

from __future__ import annotations

from collections.abc import Collection

from window_consumer.dlq.dead_letter import DeadLetter
from window_consumer.model.errors import UsageError
from window_consumer.model.produce import Produce
from window_consumer.testing.journal import (
    DONE,
    DROPPED,
    EXPIRED,
    SKIPPED,
    Handling,
    Journal,
    SentState,
)
from window_consumer.testing.topics import TestTopics


class GuaranteeFindings:
    """Reads results. Owner: one thread."""

    def __init__(self, journal: Journal, topics: TestTopics, groups: Collection[str]):
        self._journal = journal
        self._topics = topics
        self._groups = groups

    @property
    def records(self) -> list[Handling]:
        """The result of every record, in the order of sending: one entry per worker."""
        return list(self._journal)

    @property
    def processed(self) -> list[Handling]:
        """The records whose handlers returned."""
        return self._journal.with_outcome(DONE)

    @property
    def produced(self) -> list[Produce]:
        """The produced results of handlers, in the order of their acks.

        With ``once``, the rows of its outbox in the order of their commits.
        """
        return list(self._journal.results)

    @property
    def skipped(self) -> list[Handling]:
        """The records that were skipped or filtered."""
        return self._journal.with_outcome(SKIPPED)

    @property
    def deduplicated(self) -> list[Handling]:
        """The records whose effects the database of ``once`` already held."""
        return self._journal.with_outcome(SentState["DEDUPLICATED"])

    @property
    def dropped(self) -> list[Handling]:
        """The records whose attempts were spent and that a rule dropped."""
        return self._journal.with_outcome(DROPPED)

    @property
    def expired(self) -> list[Handling]:
        """The records that were older than their time to live."""
        return self._journal.with_outcome(EXPIRED)

    @property
    def retried(self) -> list[Handling]:
        """The records for which a handler was called more than once."""
        return [each for each in self._journal if each.attempts > 1]

    @property
    def moved(self) -> list[Handling]:
        """The records that were copied to a retry topic, whatever happened afterwards."""
        return [each for each in self._journal if each.was_moved]

    @property
    def dead_letters(self) -> list[DeadLetter]:
        """The contents of the dead-letter topics, by topic, partition and offset."""
        return self._topics.dead_letters()

    @property
    def committed(self) -> dict[tuple[str, int], int]:
        """The committed offsets (exclusive), by topic and partition; none for uncommitted ones.

        Raises UsageError if the workers have several groups: use ``committed_by(group)``.
        """
        groups = sorted(self._groups)
        if len(groups) != 1:
            raise UsageError(
                f"the workers belong to the groups {', '.join(groups)}: ask committed_by(GROUP)"
            )
        return self.committed_by(groups[0])

    def committed_by(self, group: str) -> dict[tuple[str, int], int]:
        """Return a group's committed offsets (exclusive), by topic and partition."""
        return self._topics.committed(group)
