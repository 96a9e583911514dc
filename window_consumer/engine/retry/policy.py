"""The ladder: what happens next to a record whose handler failed.

A record gets local retries after growing delays, then moves from one retry level to the next, then
reaches the end of the ladder: a dead-letter copy, a drop, or a stop of the worker. A blocking lane
retries without end.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal, NamedTuple

from attrs import field, frozen

from window_consumer.engine.retry.retry_topics import Level, next_level
from window_consumer.engine.scheduling.lanes import Lane
from window_consumer.model.errors import (
    Fatal,
    LeaseExpiredError,
    NotCalled,
    ProcessCrashedError,
    ProcessDiedError,
    RetryLater,
    StalledError,
)
from window_consumer.model.headers import Reason

WhenSpent = Literal["dead_letter", "drop", "stop"]

OnFailure = Literal["overtake", "block", "park"]
"""When the later records of a lane continue, which wait while a record is called again.
``overtake``: once its local attempts are spent. ``block``: once it is done; its attempts are never
spent. ``park``: here the same as ``overtake``; a ``TurnRule`` parks them."""

MAX_LATE_S = 1.0
"""A copy is called at most this long after it is due, if a slot is free."""

Jitter = Callable[[], float]
"""Returns a number in [0, 1); the runtime passes random.random, tests pass their own function."""


class Retry(NamedTuple):
    """Call the handler again after ``delay_s``."""

    delay_s: float


@frozen
class Spent:
    """The record's attempts are spent: it moves to ``level``, else to ``end``."""

    reason: Reason
    end: WhenSpent = "dead_letter"
    level: Level | None = None


PARDONED = frozenset({Reason.RETRIES_EXHAUSTED})
"""Reasons to leave that another call may resolve once the cause is over. The call of a stalled
record may still be running."""

JUDGED = PARDONED | {Reason.STALLED}
"""Reasons to leave that the breaker decides about: an outage causes them, too."""


class RetryGroup:
    """Lets the failed records of one batch continue together. Owner: poll thread.

    Records with equal waits come back in one batch, so they share one jitter. All records of a lane
    that may be called again take the step of the first one. Otherwise two of them could be called
    at once, or the later one first.
    """

    def __init__(self, draw: float):
        self._draw = draw
        self._steps: dict[Lane, Retry | Spent] = {}

    def jitter(self) -> float:
        """Return the same number for all records of the batch."""
        return self._draw

    def step_of(self, lane: Lane | None, step: Retry | Spent) -> Retry | Spent:
        """Return a record's next step: its own, or that of the first record of its lane."""
        leaves_alone = isinstance(step, Spent) and step.reason not in PARDONED
        if lane is None or leaves_alone:
            return step
        return self._steps.setdefault(lane, step)


@frozen
class Wait:
    """The wait before a further call of a record: between two bounds, in seconds."""

    shortest_s: float
    longest_s: float
    level: Level | None = None
    """The retry level where it waits; None in the source topic."""


@frozen
class RetryRules:
    """The ``retry`` section of a worker's configuration."""

    attempts: int = 3
    crash_attempts: int = 3
    backoff_min_s: float = 0.2
    backoff_max_s: float = 5.0
    on_failure: OnFailure = "overtake"
    when_spent: WhenSpent = "dead_letter"
    on_oversize: Literal["hold", "stop", "reference"] = "hold"
    fatal: tuple[type[BaseException], ...] = ()
    retryable: tuple[type[BaseException], ...] = ()
    levels: tuple[Level, ...] = ()
    """Shortest delay first."""
    attempts_per_level: int = 1
    is_final: bool = False
    """A record gets one call, whatever the breaker finds."""
    retries_stalled: bool = False
    """A record whose call was ended because it did not return gets its local retries first."""
    _verdicts: dict[type[BaseException], bool] = field(
        factory=dict, init=False, eq=False, repr=False
    )

    def next_step(
        self,
        error: BaseException,
        attempts: int,
        jitter: Jitter,
        level: Level | None = None,
        deaths: int = 0,
    ) -> Retry | Spent:
        """Decide after the ``attempts``-th call of the handler ended with ``error``.

        ``level`` is where the record was delivered from, and ``attempts`` counts since then. A
        record that asks for a longer wait than the local ones moves to a level that waits as long.
        A record that ends processes is called until ``deaths`` reaches ``crash_attempts``, at any
        level: a longer wait would not help.
        """
        if isinstance(error, NotCalled):
            return Spent(error.reason, error.end)
        died = type(error) is ProcessDiedError
        is_last = self.is_final or deaths >= self.crash_attempts
        if type(error) is ProcessCrashedError or (died and is_last):
            return Spent(Reason.CRASHED, self.when_spent)
        stalled = type(error) is StalledError
        if not (stalled or died) and self.is_fatal(error):
            reason = error.reason if isinstance(error, Fatal) else Reason.FATAL
            return Spent(reason, self.when_spent)
        if self.on_failure != "block" and not died:
            wanted_s = error.after_s if isinstance(error, RetryLater) else 0.0
            spent = (stalled and not self.retries_stalled) or attempts >= self.allowed(level)
            if spent or wanted_s > self.backoff_max_s:
                further = next_level(self.levels, level, wanted_s)
                if spent or further is not None:
                    reason = Reason.STALLED if stalled else Reason.RETRIES_EXHAUSTED
                    return Spent(reason, self.when_spent, further)
        if isinstance(error, RetryLater):
            return Retry(min(error.after_s, self.backoff_max_s))
        has_waited = type(error) is LeaseExpiredError  # until its lease ended
        return Retry(0.0 if has_waited else self.backoff(attempts, jitter))

    @property
    def moves(self) -> bool:
        """A record without attempts left leaves; otherwise its lane waits, however long."""
        return self.on_failure != "block"

    @property
    def longest_later_s(self) -> float:
        """The longest wait for RetryLater, however long a handler asks for."""
        levels = self.levels if self.moves else ()
        return max([self.backoff_max_s, *(level.delay_s for level in levels)])

    def backoff(self, failures: int, jitter: Jitter) -> float:
        """Return the seconds to wait after the n-th failure in a row (n >= 1).

        The wait is backoff_min_s * 2^(n-1), at most backoff_max_s, less up to a random quarter so
        that records that failed together do not return together.
        """
        # 2**64 is beyond any cap; without the limit a lane that blocks for days overflows.
        ceiling = min(self.backoff_min_s * 2.0 ** min(failures - 1, 64), self.backoff_max_s)
        return ceiling * (1 - 0.25 * jitter())

    def is_fatal(self, error: BaseException) -> bool:
        """Return whether calling the handler again cannot help.

        The most specific class listed as fatal or retryable decides; unlisted classes are
        retryable.
        """
        kind = type(error)
        verdict = self._verdicts.get(kind)
        if verdict is None:
            verdict = self._verdicts[kind] = self._judge(kind)
        return verdict

    def _judge(self, kind: type[BaseException]) -> bool:
        for ancestor in kind.__mro__:
            if ancestor in self.retryable:
                return False
            if ancestor is Fatal or ancestor in self.fatal:
                return True
        return False

    def allowed(self, level: Level | None) -> int:
        """Return how many calls a record may have at a level; None is the source topic."""
        return self.attempts if level is None else self.attempts_per_level

    def schedule(self) -> list[Wait]:
        """Return the wait before each further call of a record that always fails.

        With ``on_failure: block`` there is no end; these are the first ones.
        """
        waits = self._local_waits(self.attempts, None)
        for level in self.levels:
            waits.append(Wait(level.delay_s, level.delay_s + MAX_LATE_S, level))
            waits += self._local_waits(self.attempts_per_level, level)
        return waits

    def _local_waits(self, calls: int, level: Level | None) -> list[Wait]:
        ceilings = [self.backoff(n, lambda: 0.0) for n in range(1, calls)]
        return [Wait(0.75 * ceiling, ceiling, level) for ceiling in ceilings]


PUBLISH_BACKOFF = RetryRules(backoff_min_s=0.5, backoff_max_s=10.0)
"""The waits between attempts to write a copy, gentle on an unreachable broker."""
