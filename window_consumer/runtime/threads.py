"""Threads of a worker, none of which can end without being noticed."""

from __future__ import annotations

import threading
import traceback
from collections.abc import Callable
from typing import Any

from window_consumer.model.errors import WorkerStoppedError

OnDeath = Callable[[WorkerStoppedError], object]
"""Hears, on the thread that dies, why the worker has to stop."""


class WatchedThread(threading.Thread):
    """A daemon thread; what escapes from its target is told, and nobody else hears of it."""

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
        """Do what the thread is for."""
        try:
            self._does(*self._with)
        except BaseException as error:
            self._on_death(died(self.name, error))
        finally:
            del self._does, self._with


def died(name: str, error: BaseException) -> WorkerStoppedError:
    """Say that a thread has ended by what it raised."""
    stack = "".join(traceback.format_exception(error)).rstrip()
    return WorkerStoppedError(f"its thread {name} has died, please report this bug:\n{stack}")
