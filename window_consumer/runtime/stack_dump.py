"""Where running calls stand: on threads, on an event loop, in child processes (SIGUSR1)."""

from __future__ import annotations

import sys
import traceback
from collections.abc import Mapping, Sequence
from enum import StrEnum
from traceback import FrameSummary

from attrs import frozen

from window_consumer.engine.windows_snapshot import CallSnapshot
from window_consumer.model.record import TopicPartition
from window_consumer.runtime.error_report import Where, handlers_part


class ChildState(StrEnum):
    """What a child is about."""

    STARTING = "starts"
    RUNNING = "runs"
    IDLE = "has nothing to do"
    RESTING = "rests, as it is not needed"


@frozen
class ChildPicture:
    """One child process."""

    name: str
    pid: int
    state: ChildState
    on: tuple[TopicPartition, int] | None = None
    """The record that it runs, by its offset; the first one of a batch."""
    handler: str = ""
    """The one of several handlers that is called."""
    stack: Sequence[FrameSummary] = ()
    """Where that stands, the innermost frame last; empty where the child does not say."""


Coroutines = Mapping[tuple[TopicPartition, int], Where]
"""Where the calls of an event loop stand, by the offset of their record."""


@frozen
class Place:
    """Where one call stands."""

    stack: str
    """From the handler on, as Python prints it; in parentheses why there is none."""
    process: str = ""
    """The child process that it runs in, and its handler."""


class Places:
    """Where all calls of a worker stand, at the moment at which this is made. Any thread may."""

    def __init__(self, children: Sequence[ChildPicture] = (), coroutines: Coroutines | None = None):
        """Give what the worker's child processes, or its coroutines, do at this moment."""
        self._frames = sys._current_frames()  # noqa: SLF001 - the one way to other threads' stacks
        self._children = bool(children)
        self._by_record = {child.on: child for child in children if child.on is not None}
        self._coroutines = coroutines

    def of(self, call: CallSnapshot) -> Place:
        """Return where a call stands, or that it is over by now."""
        record = call.name, call.offset
        child = self._by_record.get(record)
        if child is not None:
            return _place_of_child(child)
        if self._coroutines is not None:
            return Place(_printed(self._coroutines.get(record)))
        if self._children and not call.thread:
            return Place(_OVER)
        return Place(_printed(handlers_part(self._frames.get(call.thread))))


_OVER = "(it is over by now)"


def stack_of_thread(ident: int) -> str:
    """Return where a thread stands."""
    frame = sys._current_frames().get(ident)  # noqa: SLF001 - as above
    return "(gone)" if frame is None else "".join(traceback.format_stack(frame))


def _printed(where: Where | None) -> str:
    if not where:
        return _OVER
    return "".join(traceback.StackSummary.extract(iter(where)).format())


def _place_of_child(child: ChildPicture) -> Place:
    stack = "".join(traceback.StackSummary.from_list(child.stack).format())
    handler = f", handler {child.handler}" if child.handler else ""
    return Place(
        stack or "(it does not say where it stands)", f"{child.name} ({child.pid}){handler}"
    )
