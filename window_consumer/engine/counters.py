"""Counts of what one worker has done so far, in records unless stated otherwise."""

from __future__ import annotations

from collections import Counter
from operator import attrgetter
from typing import TYPE_CHECKING

from attrs import define, evolve, field, make_class

from window_consumer.model import outcome
from window_consumer.model.outcome import Outcome

if TYPE_CHECKING:
    from window_consumer.model.outcome import OutcomeCounters as _OutcomeCounters
else:
    _fields = {name: field(default=0, type=int) for name in outcome.counters()}
    _OutcomeCounters = make_class("OutcomeCounters", _fields, slots=True)


@define
class Counters(_OutcomeCounters):
    """Running totals of one engine. Owner: poll thread; any thread may read (a little stale).

    It has a field for each counter in the table of outcomes, such as ``processed``.
    """

    delivered: int = 0
    """Records that the Source delivered."""
    produced: int = 0
    """Records that handlers returned and that were acked."""
    retried: int = 0
    """Further calls of a handler after a failure."""
    moved_to: Counter[str] = field(factory=Counter)
    """``moved`` by the name of the level."""
    dead_by: Counter[str] = field(factory=Counter)
    """Records whose dead-letter copies were acked, by reason, including expired ones."""
    unroutable: int = 0
    """Dead-lettered records that matched no handler's condition."""
    gone: int = 0
    """Offsets that the log lost before they were read, or that were then skipped."""
    stale: int = 0
    """Records delivered for a partition that is no longer ours, or twice in one assignment."""
    late: int = 0
    """Results ignored because their partition was released or their call abandoned."""
    outlived: int = 0
    """Calls that were still running when their partition was released."""
    stalled: int = 0
    """Calls reported because they did not return."""
    abandoned: int = 0
    """Calls abandoned for that reason; their records have climbed the ladder."""
    taken_back: int = 0
    """Records moved from a slow slice to others."""
    publish_failures: int = 0
    """Copies that the broker did not ack (each is retried), and calls with such results."""
    rebalances: int = 0
    """Changes of this worker's assignment; an eager rebalance counts as two."""
    limit_changes: Counter[str] = field(factory=Counter)
    """How often a different number of concurrent calls proved better, by ``LimitCause``."""
    breaker_opened: int = 0
    """How often the circuit breaker has opened."""
    commits: int = 0
    """Acked commits of a partition."""
    commits_s: float = 0.0
    """Total seconds from sending those commits to their acks."""
    commit_failures: int = 0
    transactions: int = 0
    """Committed transactions."""
    transactions_s: float = 0.0
    """Total seconds from the freeze of each transaction to its end."""
    transactions_aborted: int = 0

    @property
    def finished(self) -> int:
        """Records that need no further calls in their current topic."""
        return sum(_progress(self))

    def count(self, ended: Outcome, records: int) -> None:
        """Count records with an outcome."""
        setattr(self, ended.counter, getattr(self, ended.counter) + records)

    def copy(self) -> Counters:
        """Return a snapshot that no longer changes."""
        return evolve(
            self,
            moved_to=self.moved_to.copy(),
            dead_by=self.dead_by.copy(),
            limit_changes=self.limit_changes.copy(),
        )


_progress = attrgetter(*outcome.counters(progress=True))
