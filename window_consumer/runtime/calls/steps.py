"""Drives code around calls, written once for functions and for coroutines.

The code is a generator: it yields a call, receives its result or exception, and returns or raises
its own.
"""

from __future__ import annotations

import types
from collections.abc import Callable, Generator
from inspect import isawaitable
from typing import Any, Final

__handler_steps__ = True  # its frames are not shown, see runtime/stack.py

Called = Callable[[Any], Any]
"""A callable of a record or of a list of them: a function, or a coroutine function."""

Steps = Generator[Callable[[], Any], Any, object]

COROUTINE: Final = types.CoroutineType


def layered(steps: Callable[[Any], Steps], *, coroutines: bool) -> Called:
    """Return a function that runs these steps; a coroutine function around coroutine functions."""
    if not coroutines:
        return lambda given: _called(steps(given))

    async def call(given: Any) -> object:
        return await _awaited(steps(given))

    return call


def _called(steps: Steps) -> object:
    try:
        call = next(steps)
        while True:
            try:
                answer = call()
            except BaseException as error:
                call = steps.throw(error)
            else:
                call = steps.send(answer)
    except StopIteration as end:
        return end.value


async def _awaited(steps: Steps) -> object:
    try:
        call = next(steps)
        while True:
            try:
                answer = call()
                if type(answer) is COROUTINE or isawaitable(answer):
                    answer = await answer
            except BaseException as error:
                call = steps.throw(error)
            else:
                call = steps.send(answer)
    except StopIteration as end:
        return end.value
