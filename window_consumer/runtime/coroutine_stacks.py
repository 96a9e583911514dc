"""Where a coroutine stands that waits: its own frames, and those of what it waits for."""

from __future__ import annotations

import asyncio
from asyncio import taskgroups
from collections.abc import Iterator
from types import AsyncGeneratorType, CoroutineType, FrameType, GeneratorType
from typing import Any

from window_consumer.runtime.coroutine_calls import CallTask

_MOST_TASKS = 5
"""A task that waits for a task that waits for a task ..."""


def stack_of(task: CallTask) -> list[tuple[FrameType, int]]:
    """Return the frames of the call that a task waits in, the innermost last.

    Where it waits for another task, those of that one follow. Empty where it does not wait. Any
    thread may ask; while the loop goes on the answer may be a mixture of before and after.
    """
    frames = list(_frames(task.coroutine))
    waits_for: Any = _waits_for(task, frames)
    for _ in range(_MOST_TASKS):
        if waits_for is None or not frames:
            break
        more = list(_frames(waits_for.get_coro()))
        frames += more
        waits_for = _waits_for(waits_for, more)
    return frames


def _frames(awaitable: object) -> Iterator[tuple[FrameType, int]]:
    while awaitable is not None:
        frame: FrameType | None
        if isinstance(awaitable, CoroutineType):
            frame, awaitable = awaitable.cr_frame, awaitable.cr_await
        elif isinstance(awaitable, GeneratorType):
            frame, awaitable = awaitable.gi_frame, awaitable.gi_yieldfrom
        elif isinstance(awaitable, AsyncGeneratorType):
            frame, awaitable = awaitable.ag_frame, awaitable.ag_await
        else:
            return
        if frame is not None:
            yield frame, frame.f_lineno


def _waits_for(
    task: asyncio.Task[Any], frames: list[tuple[FrameType, int]]
) -> asyncio.Task[Any] | None:
    """Return the task that a task waits for, the first one that is not done of several."""
    future = getattr(task, "_fut_waiter", None)
    candidates = [future, *getattr(future, "_children", ())]
    if frames and frames[-1][0].f_code is taskgroups.TaskGroup.__aexit__.__code__:
        candidates += getattr(frames[-1][0].f_locals.get("self"), "_tasks", ())
    tasks = (each for each in candidates if isinstance(each, asyncio.Task) and not each.done())
    return next(tasks, None)
