"""What a slot on an event loop does with a slice: it calls a coroutine for each of its records.

A call's first step is made without anything being made for it but its context; only a call that
waits for something costs more. All calls of a slot are steps of one task, so that what asks for the
current task (``asyncio.timeout``, ``TaskGroup``) finds one, whose name is that of the record.
"""

from __future__ import annotations

import asyncio
import types
from collections.abc import Awaitable, Callable, Coroutine, Generator
from contextvars import Context, copy_context
from inspect import isawaitable
from typing import Any, Final

from window_consumer.core.slices import Lane, Slice
from window_consumer.model.errors import Skip
from window_consumer.model.fault import Failure
from window_consumer.model.record import Message, Record
from window_consumer.runtime.current import Slot, current_slot
from window_consumer.runtime.returns import note_results
from window_consumer.runtime.thread_pool import Caller


class Waiting:
    """A call that waits: its coroutine, and what it gave the loop to wait for."""

    __slots__ = ("coroutine", "waits_for")

    def __init__(self, coroutine: Coroutine[Any, Any, object], waits_for: object):
        self.coroutine = coroutine
        self.waits_for = waits_for


class Interrupted:
    """A call is ended because its partition is given up; its record stays open."""


INTERRUPTED: Final = Interrupted()


class _ClosedError(BaseException):
    """The task is thrown away while a call waits: nothing follows."""


class CallTask(asyncio.Task[None]):
    """The task of a slot; while a call runs it is named after its record. Owner: the loop."""

    worker = ""
    record: Record | None = None
    """Whose handler is being called."""
    coroutine: Coroutine[Any, Any, object] | None = None
    """The call, while it waits for something."""
    ending: Failure | Interrupted | None = None
    """Why the call is ended from outside: a failure where its record is to climb for it."""

    def get_name(self) -> str:
        """Return the worker, topic, partition and offset: ``wc-charge orders[3]@1234``."""
        record = self.record
        if record is None:
            return f"wc-{self.worker} idle"
        return f"wc-{self.worker} {record.topic}[{record.partition}]@{record.offset}"


async def call_each(
    slice_: Slice, caller: Caller, task: CallTask, on_wait: Callable[[], object]
) -> bool:
    """Call the handler for each record of the slice that is not taken back meanwhile.

    ``on_wait`` is called before the task waits for the first time in a call. Returns False where
    the task must not be used any more, because somebody has cancelled it; another one goes on with
    the rest of the slice.
    """
    handler = caller.handler
    call = slice_.call
    held_lanes = _held_lanes(slice_)
    for message in slice_.unclaimed:
        if held_lanes and slice_.lane_of and slice_.lane_of(message) in held_lanes:
            slice_.deviate().held.append(message)
            continue
        task.record = record = Record()
        record._message = message
        record._call = call
        context = copy_context()
        try:
            returned = context.run(begin, handler, record)
            if type(returned) is Waiting:
                task.coroutine = returned.coroutine
                on_wait()
                try:
                    returned = await finish(context, returned)
                finally:
                    task.coroutine = None
            if returned is not None and task.ending is None:
                note_results(slice_, (message,), returned)
                held_lanes = _held_lanes(slice_)
        except _ClosedError:
            raise GeneratorExit from None
        except BaseException as error:
            if task.ending is None:
                _note_error(slice_, message, error, caller)
                held_lanes = _held_lanes(slice_)
        if task.ending is not None:
            _note_end(slice_, message, task.ending)
            return False
        if task.cancelling():
            return False
    return True


def begin(handler: Callable[[Record], object], record: Record) -> object:
    """Take the first step of a call; return ``Waiting``, or what it returned if that was all.

    Runs in the call's context.
    """
    current_slot.set(Slot(record))
    coroutine = handler(record)
    if type(coroutine) is not types.CoroutineType:
        coroutine = _returned(coroutine)
    try:
        return Waiting(coroutine, coroutine.send(None))
    except StopIteration as end:
        return end.value


@types.coroutine
def finish(context: Context, call: Waiting) -> Generator[object, Any, object]:
    """Take the other steps of a call, each in the call's context."""
    coroutine, waits_for = call.coroutine, call.waits_for
    try:
        while True:
            try:
                value = yield waits_for
            except GeneratorExit:
                coroutine.close()
                raise _ClosedError from None
            except BaseException as error:
                waits_for = context.run(coroutine.throw, error)
            else:
                waits_for = context.run(coroutine.send, value)
    except StopIteration as end:
        return end.value


async def _returned(value: Awaitable[object] | object) -> object:
    """Await what a function returned that is no coroutine function itself but calls one."""
    return await value if isawaitable(value) else value


def _note_error(slice_: Slice, message: Message, error: BaseException, caller: Caller) -> None:
    if isinstance(error, Skip):
        slice_.deviate().skipped.append(message)
    else:
        failure = caller.describe(error, slice_.call.handler)
        slice_.deviate().failed.append((message, failure))


def _note_end(slice_: Slice, message: Message, ending: Failure | Interrupted) -> None:
    """Note a call that was ended, whatever it has made of that: it is never a success."""
    if isinstance(ending, Failure):
        slice_.deviate().failed.append((message, ending))
    else:
        slice_.deviate().held.append(message)


def _held_lanes(slice_: Slice) -> set[Lane]:
    """Return the lanes of records that are not finished: nothing else of them may start."""
    noted = slice_.deviations
    if noted is None or slice_.lane_of is None:
        return set()
    open_ = [message for message, _ in noted.failed]
    open_ += [message for each in noted.returned for message in each.messages]
    return set(map(slice_.lane_of, open_)) - {None}
