"""Trouble that is said once when it begins, and once when it is over."""

from __future__ import annotations

import logging
from time import monotonic


class Trouble:
    """One thing that may go wrong again and again. Owner: one thread."""

    def __init__(self, logger: logging.Logger, over: str):
        self._logger = logger
        self._over = over
        self._said: str | None = None
        self._since = 0.0

    @property
    def lasts(self) -> bool:
        """It was said to have begun, and not that it is over."""
        return self._said is not None

    @property
    def seconds(self) -> float:
        """For how long it has lasted, 0 where all is well. Any thread may ask."""
        return 0.0 if self._said is None else max(0.0, monotonic() - self._since)

    def begins(self, text: str) -> None:
        """Say what is wrong, unless that was said already."""
        if self._said is None:
            self._since = monotonic()
            self._logger.warning("%s", text)
        self._said = text

    def ends(self) -> None:
        """Say that all is well, where something else was said before."""
        if self._said is not None:
            self._said = None
            self._logger.info("%s", self._over)
