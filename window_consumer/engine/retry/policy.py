"""The ladder: what happens next to a record whose handler failed.

A record gets local retries after growing delays, then one retry level after another, then the end
of the ladder: a dead-letter copy, a drop, or a stop of the worker. A blocking lane gets retries
without end.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum
from typing import TYPE_CHECKING, Literal

from attrs import define, field, frozen

from window_consumer.engine.retry.retry_topics import Level, next_level
from window_consumer.engine.scheduling.lanes import NO_HOLD, LaneHold
from window_consumer.model.copy_headers import Hop
from window_consumer.model.errors import (
    Fatal,
    NotCalled,
    ProcessCrashedError,
    ProcessDiedError,
    RetryLater,
    StalledError,
)
from window_consumer.model.fault import Failure
from window_consumer.model.headers import Reason

if TYPE_CHECKING:
    from window_consumer.engine.partition import Partition
    from window_consumer.engine.scheduling.lanes import Lane
    from window_consumer.model.record import Message

WhenSpent = Literal["dead_letter", "drop", "stop"]

MAX_LATE_S = 1.0
"""A copy is called at most this long after it is due, if a slot is free."""

Jitter = Callable[[], float]
"""Returns a number in [0, 1); the runtime passes random.random, tests a function of their own."""


class Detail(Enum):
    """How much a copy contains; each step follows if the one before was too large."""

    FULL = "full"
    WITHOUT_ERROR_TEXTS = "without error texts"
    REFERENCE = "a reference to the value"


@define(eq=False)
class FailedRecord:
    """A record that failed at least once and has no final outcome yet."""

    partition: Partition
    message: Message
    seq: int
    lane: Lane | None
    attempts: int
    """Handler calls so far, since it was delivered from its current topic."""
    failure: Failure
    """The last failure."""
    first_failure: float
    last_failure: float
    """When it failed first and last, in monotonic seconds."""
    due: float = 0.0
    """When it is retried, if it is."""
    reason: Reason | None = None
    """Why it leaves; None while it is retried."""
    end: WhenSpent = "dead_letter"
    """What happens to it at the end of the ladder."""
    level: Level | None = None
    """The retry level that it leaves for; None at the end of the ladder."""
    detail: Detail = Detail.FULL
    publish_failures: int = 0
    together: object | None = None
    """Failed records with the same object and the same ``due`` are called again in one batch."""
    deaths: int = 0
    """Handler calls that ended the process of their slot; the attempts include them."""
    called_at: float = 0.0
    """When its last call began, in monotonic seconds."""
    in_batch: bool = False
    """Its last call failed for a whole batch: that is no verdict on this record."""
    alone: bool = False
    """It is called alone from now on, also by batch handlers."""
    is_decided: bool = True
    """False while the breaker may hold it although its attempts are spent."""
    released: bool = False
    """It leaves when it fails once more, whatever the breaker has found out."""
    asked_later: int = 0
    """Handler calls that asked for a later one; the attempts include them."""
    spared: int = 0
    """Attempts that are not charged: the breaker was finding out why many calls fail."""
    in_doubt: int = 0
    """Those of them that are charged after all if the breaker finds poison."""
    uncalled: int = 0
    """Those of the attempts for which no handler was called: see ``CallAgain``."""
    is_stray: bool = False
    """It has not failed here; it moves to another partition of its topic (``lane_ownership``)."""
    hold: LaneHold = NO_HOLD
    """The hold on its lane, until it has its final outcome."""

    @property
    def is_dropped(self) -> bool:
        """It leaves without a copy."""
        return self.reason is not None and self.level is None and self.end == "drop"

    @property
    def asks_later(self) -> bool:
        """Its last call asked for a later one."""
        return isinstance(self.failure.error, RetryLater)

    @property
    def hop(self) -> Hop:
        """Its history before this delivery."""
        return self.partition.retry_level.hop_of(self.message)

    @property
    def charged(self) -> int:
        """The attempts since it was delivered that count."""
        return self.attempts - self.spared - self.uncalled

    @property
    def calls(self) -> int:
        """Handler calls so far, over all hops."""
        return self.hop.attempts + self.attempts - self.uncalled


@frozen
class Retry:
    """Call the handler again after ``delay_s``."""

    delay_s: float


@frozen
class Spent:
    """The record's attempts are spent: it moves to ``level``, else to ``end``."""

    reason: Reason
    end: WhenSpent = "dead_letter"
    level: Level | None = None


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
    on_failure: Literal["overtake", "block"] = "overtake"
    when_spent: WhenSpent = "dead_letter"
    on_oversize: Literal["hold", "stop", "reference"] = "hold"
    fatal: tuple[type[BaseException], ...] = ()
    retryable: tuple[type[BaseException], ...] = ()
    levels: tuple[Level, ...] = ()
    """Shortest delay first."""
    attempts_per_level: int = 1
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
        A record that ends processes is called until ``deaths`` reaches ``crash_attempts``, wherever
        it is: a longer wait would not help.
        """
        if isinstance(error, NotCalled):
            return Spent(error.reason, error.end)
        died = type(error) is ProcessDiedError
        if type(error) is ProcessCrashedError or (died and deaths >= self.crash_attempts):
            return Spent(Reason.CRASHED, self.when_spent)
        stalled = type(error) is StalledError
        if not (stalled or died) and self.is_fatal(error):
            reason = error.reason if isinstance(error, Fatal) else Reason.FATAL
            return Spent(reason, self.when_spent)
        if self.on_failure == "overtake" and not died:
            wanted_s = error.after_s if isinstance(error, RetryLater) else 0.0
            spent = stalled or attempts >= self.allowed(level)
            if spent or wanted_s > self.backoff_max_s:
                further = next_level(self.levels, level, wanted_s)
                if spent or further is not None:
                    reason = Reason.STALLED if stalled else Reason.RETRIES_EXHAUSTED
                    return Spent(reason, self.when_spent, further)
        if isinstance(error, RetryLater):
            return Retry(min(error.after_s, self.backoff_max_s))
        return Retry(self.backoff(attempts, jitter))

    @property
    def longest_later_s(self) -> float:
        """The longest wait that RetryLater gets, however long a handler asks for."""
        levels = self.levels if self.on_failure == "overtake" else ()
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
"""Waits between attempts to write a copy: gentle on an unreachable broker."""
