"""How long this process stood still: time that no part of the project can be blamed for."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

from attrs import define

_CHECK_S = 0.05
_USUAL_S = 0.2
"""How late a thread that only sleeps may wake on a busy machine."""


@define(eq=False)
class Stalls:
    """Adds up by how much a thread that only sleeps has overslept. Owner: that thread."""

    seconds: float = 0.0

    @contextmanager
    def watched(self) -> Iterator[None]:
        """Look while the block lasts."""
        over = threading.Event()
        thread = threading.Thread(target=self._watch, args=(over,), daemon=True)
        thread.start()
        try:
            yield
        finally:
            over.set()
            thread.join()

    def _watch(self, over: threading.Event) -> None:
        while not over.is_set():
            began = time.monotonic()
            if not over.wait(_CHECK_S):
                late = time.monotonic() - began - _CHECK_S
                self.seconds += late if late > _USUAL_S else 0.0
