"""What the failed records of one batch have in common."""

from __future__ import annotations

from window_consumer.core.ladder import Retry, Spent
from window_consumer.core.slices import Lane
from window_consumer.model.headers import Reason

PARDONED = frozenset({Reason.RETRIES_EXHAUSTED})
"""Why records leave that another call may save, when what they failed of is over. The call of one
that stalled may still be running."""


class Together:
    """Lets the failed records of one batch go on together. Owner: poll thread.

    Those that wait equally long come back in one batch, so they wait for one and the same time. Of
    one lane all that may be called again go the way of the first: else two of them could be called
    at once, or the later one first.
    """

    def __init__(self, draw: float):
        self._draw = draw
        self._steps: dict[Lane, Retry | Spent] = {}

    def jitter(self) -> float:
        """Return the same number for all of them."""
        return self._draw

    def step_of(self, lane: Lane | None, step: Retry | Spent) -> Retry | Spent:
        """Return a record's next step: its own, or that of the first one of its lane."""
        leaves_alone = isinstance(step, Spent) and step.reason not in PARDONED
        if lane is None or leaves_alone:
            return step
        return self._steps.setdefault(lane, step)
