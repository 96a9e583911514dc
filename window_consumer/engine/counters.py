"""What one worker has done so far, in records unless said otherwise."""

from __future__ import annotations

from collections import Counter

from attrs import define, evolve, field


@define
class Counters:
    """Running totals of one engine. Owner: poll thread; anyone may read (a little stale)."""

    delivered: int = 0
    """Records that the Source delivered."""
    processed: int = 0
    """Records whose handler returned."""
    produced: int = 0
    """Records that handlers returned and that were acked."""
    skipped: int = 0
    retried: int = 0
    """Further calls of a handler after a failure."""
    moved: int = 0
    """Records whose copies in a retry topic were acked."""
    moved_to: Counter[str] = field(factory=Counter)
    """The same by the name of the level."""
    dead_lettered: int = 0
    dead_by: Counter[str] = field(factory=Counter)
    """Records whose copies among the dead letters were acked, by reason; the expired as well."""
    dropped: int = 0
    expired: int = 0
    """Records that were older than their time to live, whether a copy was kept or not."""
    unroutable: int = 0
    """Of the dead-lettered: those for which no handler's condition held."""
    gone: int = 0
    """Offsets that were gone from the log before they were read, or were passed over then."""
    earlier: int = 0
    """Delivered again although finished in an earlier assignment; no handler was called."""
    stale: int = 0
    """Delivered for a partition that is not ours any more, or twice in one assignment."""
    late: int = 0
    """Results that were ignored because their partition was gone, or their call was given up."""
    outlived: int = 0
    """Calls that were still running when their partition was given up."""
    stalled: int = 0
    """Calls that were reported because they did not return."""
    abandoned: int = 0
    """Calls that were given up for that; their records have climbed the ladder."""
    taken_back: int = 0
    """Records that were moved from a slow slice to others."""
    publish_failures: int = 0
    """Copies that the broker did not ack (each is tried again), and calls with such results."""
    rebalances: int = 0
    """How often partitions were given to this worker or taken from it; an eager one is two."""
    limit_changes: Counter[str] = field(factory=Counter)
    """How often another number of calls at once was found better, by ``LimitCause``."""
    breaker_opened: int = 0
    """How often the circuit breaker has opened."""
    commits: int = 0
    """Acked commits of a partition."""
    commits_s: float = 0.0
    """Seconds from sending those to hearing of their acks, together."""
    commit_failures: int = 0

    @property
    def finished(self) -> int:
        """Records that need no more calls where they were."""
        left = self.moved + self.dead_lettered + self.dropped + self.expired
        return self.processed + self.skipped + left

    def copy(self) -> Counters:
        """Return what it is at this moment; it does not change any more."""
        return evolve(
            self,
            moved_to=self.moved_to.copy(),
            dead_by=self.dead_by.copy(),
            limit_changes=self.limit_changes.copy(),
        )
