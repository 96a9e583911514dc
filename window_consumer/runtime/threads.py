"""Threads of a worker whose end is always reported."""

from __future__ import annotations

import threading
import traceback
from collections.abc import Callable
from typing import Any

from window_consumer.model.errors import WorkerStoppedError

OnDeath = Callable[[WorkerStoppedError], object]
"""Called on the dying thread with the reason why the worker must stop."""


class WatchedThread(threading.Thread):
    """A daemon thread that reports an exception that escapes from its target."""

    def __init__(
        self,
        target: Callable[..., object],
        name: str,
        on_death: OnDeath,
        args: tuple[Any, ...] = (),
    ):
        super().__init__(name=name, daemon=True)
        self._does = target
        self._on_death = on_death
        self._with = args

    def run(self) -> None:
        """Run the target."""
        try:
            self._does(*self._with)
        except BaseException as error:
            self._on_death(died(self.name, error))
        finally:
            del self._does, self._with


def died(name: str, error: BaseException) -> WorkerStoppedError:
    """Return the error for a thread that ended with an exception."""
    stack = "".join(traceback.format_exception(error)).rstrip()
    return WorkerStoppedError(f"its thread {name} has died, please report this bug:\n{stack}")
