"""The levels of the ladder: each subscribed topic's role, and where its records go next."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from attrs import frozen

from window_consumer.model.copy_headers import Hop, attempts_before, not_before, of_copy, of_source
from window_consumer.model.record import Message

MAX_SKEW_S = 5.0
"""How far clocks may disagree. A due time further off than this plus its level's delay comes from a
wrong clock."""


def state_topic(group: str) -> str:
    """Return the topic that stores a group's resolved dead letters."""
    return f"{group}.dlq.state"


@frozen
class Level:
    """One retry level; its name is the delay as written in the topic's name."""

    name: str
    delay_s: float


@frozen
class RetryTopicLevel:
    """One topic that a worker reads: a source, the redrive entry topic, or a level."""

    source: str
    """The source topic of these records or copies."""
    level: Level | None = None
    """None for a source and for the redrive entry topic."""
    is_copy: bool = False
    """The records are copies that this group wrote."""

    def hop_of(self, message: Message) -> Hop:
        """Return a record's history so far."""
        return of_copy(message) if self.is_copy else of_source(message)

    @property
    def attempts_before(self) -> Callable[[Message], int] | None:
        """Returns how often a handler was called for a record elsewhere; None if never."""
        return attempts_before if self.is_copy else None

    def wait_s(self, message: Message, wall_ms: float) -> float:
        """Return how many seconds a record still has to wait; 0 or less if it is due."""
        if self.level is None:
            return 0.0
        due_ms = not_before(message)
        if due_ms is None:
            return 0.0
        return min((due_ms - wall_ms) / 1000, self.level.delay_s + MAX_SKEW_S)


def is_read_on(retry_level: RetryTopicLevel, backlog: int | None) -> bool:
    """Return whether to read a retry topic that has no configured level.

    ``backlog`` is the number of its records that the group has not finished; None if the cluster
    does not report it. A removed level is read until it is drained, the redrive entry topic always.
    """
    return retry_level.level is None or backlog != 0


def next_level(
    levels: Sequence[Level], after: Level | None, at_least_s: float = 0.0
) -> Level | None:
    """Return the level that a record moves to; None at the end of the ladder.

    This is the first level with a longer delay than the current one, which may have been removed
    from the configuration since. If possible, its delay is at least ``at_least_s``.
    """
    further = [each for each in levels if after is None or each.delay_s > after.delay_s]
    long_enough = [each for each in further if each.delay_s >= at_least_s]
    return next(iter(long_enough or further[-1:]), None)
