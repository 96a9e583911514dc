"""Positions of running calls: on threads, on an event loop, in child processes (SIGUSR1)."""

from __future__ import annotations

import asyncio
import sys
import traceback
from asyncio import taskgroups
from collections.abc import Iterator, Mapping, Sequence
from enum import StrEnum
from traceback import FrameSummary
from types import AsyncGeneratorType, CoroutineType, FrameType, GeneratorType
from typing import Any

from attrs import frozen

from window_consumer.engine.windows_snapshot import CallSnapshot
from window_consumer.model.record import TopicPartition
from window_consumer.runtime.stack import Where, handlers_part, printed


class ChildState(StrEnum):
    """The state of a child process."""

    STARTING = "starts"
    RUNNING = "runs"
    IDLE = "has nothing to do"
    RESTING = "rests, because it is not needed"


@frozen
class ChildPicture:
    """One child process."""

    name: str
    pid: int
    state: ChildState
    on: tuple[TopicPartition, int] | None = None
    """The record that it runs, by offset; the first one of a batch."""
    handler: str = ""
    """The called handler, if there are several."""
    stack: Sequence[FrameSummary] = ()
    """The stack of the call, the innermost frame last; empty if the child did not answer."""


Coroutines = Mapping[tuple[TopicPartition, int], Where]
"""The stacks of an event loop's calls, by the offset of their record."""


@frozen
class CallPosition:
    """The position of one call."""

    stack: str
    """The stack from the handler on, as Python prints it, or the reason why it is missing, in
    parentheses."""
    process: str = ""
    """The child process of the call, and its handler."""


class CallPositions:
    """The positions of all calls of a worker at its creation. Any thread may create it."""

    def __init__(self, children: Sequence[ChildPicture] = (), coroutines: Coroutines | None = None):
        """Take the current state of the worker's child processes, or of its coroutines."""
        self._frames = sys._current_frames()  # noqa: SLF001 - the one way to other threads' stacks
        self._children = bool(children)
        self._by_record = {child.on: child for child in children if child.on is not None}
        self._coroutines = coroutines

    def of(self, call: CallSnapshot) -> CallPosition:
        """Return the position of a call, or that it has ended."""
        record = call.name, call.offset
        child = self._by_record.get(record)
        if child is not None:
            return _place_of_child(child)
        if self._coroutines is not None:
            return CallPosition(_printed(self._coroutines.get(record)))
        if self._children and not call.thread:
            return CallPosition(_OVER)
        return CallPosition(_printed(handlers_part(self._frames.get(call.thread))))


_OVER = "(it has ended)"


def stack_of_thread(ident: int) -> str:
    """Return the stack of a thread."""
    frame = sys._current_frames().get(ident)  # noqa: SLF001 - as above
    return "(gone)" if frame is None else "".join(traceback.format_stack(frame))


def _printed(where: Where | None) -> str:
    return printed(where) if where else _OVER


def _place_of_child(child: ChildPicture) -> CallPosition:
    stack = printed(child.stack)
    handler = f", handler {child.handler}" if child.handler else ""
    return CallPosition(
        stack or "(its stack is not available)", f"{child.name} ({child.pid}){handler}"
    )


_MOST_TASKS = 5
"""The longest followed chain of tasks that wait for one another."""


def task_stack(task: asyncio.Task[Any], call: object) -> list[tuple[FrameType, int]]:
    """Return the frames of the call that a task waits in, the innermost last.

    If it waits for another task, that task's frames follow. Empty if it does not wait. Any thread
    may call it; while the loop runs, the answer may mix states.
    """
    frames = list(_frames(call))
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
    """Return the task that a task waits for; of several, the first that is not done."""
    future = getattr(task, "_fut_waiter", None)
    candidates = [future, *getattr(future, "_children", ())]
    if frames and frames[-1][0].f_code is taskgroups.TaskGroup.__aexit__.__code__:
        candidates += getattr(frames[-1][0].f_locals.get("self"), "_tasks", ())
    tasks = (each for each in candidates if isinstance(each, asyncio.Task) and not each.done())
    return next(tasks, None)
