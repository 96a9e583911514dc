"""What one worker has done so far, in records unless stated otherwise."""

from __future__ import annotations

from collections import Counter

from attrs import define, evolve, field


@define
class Counters:
    """Running totals of one engine. Owner: poll thread; any thread may read (a little stale)."""

    delivered: int = 0
    """Records that the Source delivered."""
    processed: int = 0
    """Records whose handler returned."""
    produced: int = 0
    """Records that handlers returned and that were acked."""
    skipped: int = 0
    deduplicated: int = 0
    """Records whose effect the database already held: no handler was called."""
    retried: int = 0
    """Further calls of a handler after a failure."""
    moved: int = 0
    """Records whose copies in a retry topic were acked."""
    moved_to: Counter[str] = field(factory=Counter)
    """``moved`` by the name of the level."""
    dead_lettered: int = 0
    dead_by: Counter[str] = field(factory=Counter)
    """Records whose dead-letter copies were acked, by reason, including expired ones."""
    dropped: int = 0
    expired: int = 0
    """Records older than their time to live, with or without a copy."""
    unroutable: int = 0
    """Dead-lettered records that matched no handler's condition."""
    gone: int = 0
    """Offsets that the log lost before they were read, or that were then skipped."""
    earlier: int = 0
    """Delivered again although finished in an earlier assignment; no handler was called."""
    stale: int = 0
    """Delivered for a partition that is no longer ours, or twice in one assignment."""
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
    """How often another number of concurrent calls proved better, by ``LimitCause``."""
    breaker_opened: int = 0
    """How often the circuit breaker has opened."""
    commits: int = 0
    """Acked commits of a partition."""
    commits_s: float = 0.0
    """Total seconds from sending those commits to their acks."""
    commit_failures: int = 0

    @property
    def finished(self) -> int:
        """Records that need no more calls in their current topic."""
        left = self.moved + self.dead_lettered + self.dropped + self.expired
        return self.processed + self.skipped + self.deduplicated + left

    def copy(self) -> Counters:
        """Return a snapshot that no longer changes."""
        return evolve(
            self,
            moved_to=self.moved_to.copy(),
            dead_by=self.dead_by.copy(),
            limit_changes=self.limit_changes.copy(),
        )
