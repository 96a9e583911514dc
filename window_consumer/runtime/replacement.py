"""When a child that has ended is replaced: what dies again and again must not keep a core busy."""

from __future__ import annotations

from typing import Final

BACKOFF_S = 0.1
MAX_BACKOFF_S: Final = 5.0
"""A child that has died is replaced after a wait that doubles while children live for less."""


class Replacement:
    """The deaths of one slot's children. Owner: the thread that keeps them."""

    def __init__(self) -> None:
        self._quick = 0
        """Deaths in a row, each soon after the start."""

    def wait_s(self, lived_s: float, *, was_killed: bool, is_halving: bool) -> float:
        """Return how long to wait after a child that has lived for so long.

        One that we killed is replaced at once. So is one that died on a batch of several records
        (``is_halving``): the batch comes back in halves, so there are no more such deaths than
        records, and the record that is to blame is found the sooner.
        """
        if was_killed or lived_s > MAX_BACKOFF_S:
            self._quick = 0
            return 0.0
        if is_halving:
            return 0.0
        self._quick += 1
        return min(MAX_BACKOFF_S, BACKOFF_S * 2.0 ** min(self._quick - 1, 16))
