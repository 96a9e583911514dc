"""Python's debugger, for handlers of either kind."""

from __future__ import annotations

import inspect
import pdb  # noqa: T100 - the debugger is what `dlq debug` is for
import sys
import types
from bdb import BdbQuit
from collections.abc import Awaitable, Callable, Coroutine, Generator
from typing import Any


class Debugger(pdb.Pdb):
    """Stops at the first line of what it calls. Remembers that somebody has quit.

    pdb itself returns then as if the handler had returned.
    """

    was_quit = False

    def set_quit(self) -> None:
        """Quit, from the prompt or because nothing more is typed."""
        self.was_quit = True
        super().set_quit()

    def call(self, function: Callable[..., object], *arguments: object) -> object:
        """Call a function; BdbQuit where somebody has quit."""
        result = self.runcall(function, *arguments)
        self._check()
        return result

    async def call_coroutine(
        self, function: Callable[..., Awaitable[object]], *arguments: object
    ) -> object:
        """Await what a coroutine function makes; BdbQuit where somebody has quit.

        What it waits for is not stepped through: the loop runs without the debugger meanwhile.
        """
        try:
            return await self._stepped(_coroutine(function(*arguments)))
        finally:
            self._check()

    @types.coroutine
    def _stepped(self, coroutine: Coroutine[Any, Any, object]) -> Generator[object, Any, object]:
        self.reset()
        send: Callable[[Any], object] = coroutine.send
        value: Any = None
        try:
            while True:
                waits_for = self._step(send, value)
                try:
                    send, value = coroutine.send, (yield waits_for)
                except BaseException as error:
                    send, value = coroutine.throw, error
        except StopIteration as end:
            return end.value
        except BdbQuit:
            return None

    def _step(self, send: Callable[[Any], object], value: Any) -> object:
        # A function of its own: below a generator pdb stops at every StopIteration.
        sys.settrace(self.trace_dispatch)
        try:
            return send(value)
        finally:
            sys.settrace(None)

    def _check(self) -> None:
        # Middleware must not take half a call for a whole one: it may commit what was done.
        if self.was_quit:
            raise BdbQuit


def _coroutine(made: Any) -> Coroutine[Any, Any, object]:
    """Return what a coroutine function has made; what only can be awaited in one of ours."""

    async def awaited() -> object:
        return await made

    return made if inspect.iscoroutine(made) else awaited()
