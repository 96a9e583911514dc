"""Requests of other threads that the poll thread runs on its Engine."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Generic, TypeVar

from window_consumer.engine.engine import Engine
from window_consumer.model.protocols import Clock

T = TypeVar("T")

Ask = Callable[[Engine, Clock], T]
"""Called on the poll thread between two events; must be quick and must not block."""


class MailboxRequest(Generic[T]):
    """A request that is answered once. Any thread may wait for the answer."""

    def __init__(self, ask: Ask[T]):
        self._ask = ask
        self._answered = threading.Event()
        self._answer: T | None = None
        self._wanted = True

    def answer(self, engine: Engine, clock: Clock) -> None:
        """Answer on the poll thread; the waiting thread continues even if that raises.

        A request that nobody waits for any more is skipped.
        """
        try:
            if self._wanted:
                self._answer = self._ask(engine, clock)
        finally:
            self._answered.set()

    def wait(self, timeout_s: float) -> T | None:
        """Return the answer, None if it did not come in time or the request failed."""
        if not self._answered.wait(timeout_s):
            self._wanted = False
            return None
        return self._answer
