"""The fault plan of a simulation: how calls, commits and copies end until the faults stop."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from random import Random

from window_consumer.model.errors import (
    CommitFailedError,
    Expired,
    Fatal,
    NoHandlerMatched,
    NotCalled,
    RetryLater,
    Skip,
    Unroutable,
)
from window_consumer.model.protocols import Commit, Copy
from window_consumer.simulator.log_history import SimulatedCall
from window_consumer.simulator.schedule import RESULT_TOPICS, InvalidOrderError, SchedulePlan
from window_consumer.testing.fakes.group import RefusedCommit
from window_consumer.testing.fakes.sink import Fate

FOREVER = 10**9

_REFUSALS = (
    RefusedCommit(CommitFailedError("the coordinator is loading")),
    RefusedCommit(CommitFailedError("a rebalance is in progress")),
    RefusedCommit(CommitFailedError("the request timed out"), written=True),
)

_FATES = (Fate.LOST, Fate.WRITTEN, Fate.QUEUE_FULL)


class FaultPlan:
    """Decides what fails. Owner: one thread."""

    def __init__(self, plan: SchedulePlan, rng: Random):
        self._handlers = plan.handlers
        self._rng = rng
        self.calm = False
        """Nothing fails any more, and hanging calls return."""
        self.wall_ms: Callable[[], int] = lambda: 0
        """The simulated time in milliseconds since 1970; set by the simulation."""
        self.commits_fail = False
        self.copies_fail = False
        self.outage = False
        """Every call fails."""

    def change(self) -> None:
        """Change the weather: what fails from now on."""
        self.commits_fail = self._rng.random() < 0.4
        self.copies_fail = self._rng.random() < 0.4
        self.outage = self._rng.random() < 0.3

    def steps(self, call: SimulatedCall) -> int:
        """Return how many steps a call takes beyond its first."""
        handlers = self._handlers
        chance = self._rng.random()
        if chance < handlers.hangs:
            return FOREVER
        if chance < handlers.hangs + handlers.slow:
            return call.attempt + int(40 * self._rng.random() ** 2)
        return 0

    def must_end(self) -> bool:
        """Return whether long calls must end now."""
        return self.calm

    def ending(self, call: SimulatedCall) -> Exception | None:
        """Return what a call raises; None if it returns."""
        if self.calm:
            return None
        if self.outage or call.record.poison:
            return ValueError("outage" if self.outage else "poison")
        handlers = self._handlers
        chance = self._rng.random()
        for share, make in (
            (handlers.fails, lambda: ValueError("made to fail")),
            (handlers.fatal, self._fatal),
            (handlers.skips, Skip),
            (handlers.later, lambda: RetryLater(self._rng.choice((0.0, 0.05, 60.0)))),
            (handlers.leaves, self._not_called),
        ):
            if chance < share:
                return make()
            chance -= share
        return None

    def endings(self, calls: Sequence[SimulatedCall]) -> list[Exception | None]:
        """Return each record's error in a batch handler's call; None if it is done.

        Some calls fail as a whole; the others report the failed records one by one.
        """
        errors = [self.ending(call) for call in calls]
        whole = errors[0]
        if whole is not None and not isinstance(whole, NotCalled) and self._rng.random() < 0.4:
            return [whole] * len(calls)
        return errors

    def returns(self, call: SimulatedCall) -> tuple[int, str]:  # noqa: ARG002 - subclasses use it
        """Return how many results a call returns, and why the last is refused for good."""
        rng = self._rng
        if not self._handlers.returns or rng.random() >= self._handlers.returns:
            return 0, ""
        is_good = self.calm or rng.random() < 1 - self._handlers.refused
        bad = "" if is_good else rng.choice(("topic", "size"))
        return rng.randint(1, 3), bad

    def _fatal(self) -> Exception:
        return Fatal("made to fail") if self._rng.random() < 0.5 else InvalidOrderError()

    def _not_called(self) -> Exception:
        ends = Expired("old"), Expired("old", "drop"), Unroutable("odd"), NoHandlerMatched("odd")
        return self._rng.choice(ends)

    def commit_fault(self, _commit: Commit) -> RefusedCommit | None:
        """Decide how a commit ends."""
        if self.calm or not self.commits_fail or self._rng.random() < 0.5:
            return None
        return self._rng.choice(_REFUSALS)

    def fate_of(self, copy: Copy) -> Fate:
        """Decide how a copy or a result ends."""
        if self.calm or not self.copies_fail or self._rng.random() < 0.4:
            return Fate.ACKED
        fate = self._rng.choice(_FATES)
        # Refusals by a full queue come before other answers, and the watch of results judges all
        # answers together.
        return Fate.LOST if fate is Fate.QUEUE_FULL and copy.topic in RESULT_TOPICS else fate
