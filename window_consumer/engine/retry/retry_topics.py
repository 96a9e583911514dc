"""The rungs of the ladder: what each topic of a worker is, and where a record goes from there."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from attrs import frozen

from window_consumer.model.copy_headers import (
    Hop,
    attempts_before,
    not_before,
    of_copy,
    of_source,
)
from window_consumer.model.record import Message

MAX_SKEW_S = 5.0
"""How far clocks may disagree: a due time that lies further off than its level's delay and this
was written by a clock that is wrong."""


def state_topic(group: str) -> str:
    """Return the name of a group's memory of resolved dead letters."""
    return f"{group}.dlq.state"


@frozen
class Level:
    """One retry level; its name is the delay as it is written in the topic's name."""

    name: str
    delay_s: float


@frozen
class RetryTopicLevel:
    """One topic that a worker reads: a source, the entry for what is redriven, or a level."""

    source: str
    """The source topic whose records, or copies, lie here."""
    level: Level | None = None
    """None on a source, and on the entry for redriven records."""
    is_copy: bool = False
    """The records are copies that this group has written."""

    def hop_of(self, message: Message) -> Hop:
        """Return what is known of a record's way so far."""
        return of_copy(message) if self.is_copy else of_source(message)

    @property
    def attempts_before(self) -> Callable[[Message], int] | None:
        """Tells how often a handler was called for a record elsewhere; None where never."""
        return attempts_before if self.is_copy else None

    def wait_s(self, message: Message, wall_ms: float) -> float:
        """Return how long a record still has to wait, 0 or less where it is due."""
        if self.level is None:
            return 0.0
        due_ms = not_before(message)
        if due_ms is None:
            return 0.0
        return min((due_ms - wall_ms) / 1000, self.level.delay_s + MAX_SKEW_S)


def is_read_on(retry_level: RetryTopicLevel, backlog: int | None) -> bool:
    """Tell whether a retry topic is read for which no configured level stands.

    ``backlog`` is how many of its records the group has not finished, None where the cluster does
    not tell. A level that was taken out is read until it is drained; the entry for redriven
    records always.
    """
    return retry_level.level is None or backlog != 0


def next_level(
    levels: Sequence[Level], after: Level | None, at_least_s: float = 0.0
) -> Level | None:
    """Return the level that a record moves on to, None where the ladder ends.

    It is the first with a longer delay than the one where the record is now, which may have been
    taken out of the configuration since, and where there is one, with a delay of ``at_least_s``.
    """
    further = [each for each in levels if after is None or each.delay_s > after.delay_s]
    long_enough = [each for each in further if each.delay_s >= at_least_s]
    return next(iter(long_enough or further[-1:]), None)
