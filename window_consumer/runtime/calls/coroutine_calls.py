"""Calls of a slot on an event loop: it awaits a coroutine for each record of a slice.

One task awaits all calls of a slot, so that code that needs the current task (``asyncio.timeout``,
``TaskGroup``) finds one, named after the record. The task's context holds only the record. If a
call leaves anything else in it, the task must not be used again, and later calls should run
``apart``, which takes more time.
"""

from __future__ import annotations

import asyncio
import types
from collections.abc import Awaitable, Callable, Coroutine, Generator
from contextvars import Context, copy_context
from inspect import isawaitable
from typing import Any, Final

from window_consumer.engine.scheduling.lanes import Lane
from window_consumer.engine.scheduling.slices import Slice
from window_consumer.model.fault import Failure
from window_consumer.model.record import Message, Record
from window_consumer.runtime.calls.batch_calls import claim_all, record_answer, record_error
from window_consumer.runtime.calls.caller import Caller, record_raised
from window_consumer.runtime.calls.result_guard import record_results
from window_consumer.runtime.context import Slot, current_slot

__handler_layer__ = True  # its frames are no part of a failure, see runtime/stack.py


class Interrupted:
    """A call that is ended because its partition is given up. Its record stays open."""


INTERRUPTED: Final = Interrupted()

_COROUTINE: Final = types.CoroutineType


class CallTask(asyncio.Task[None]):
    """The task of a slot, named after the record of its running call. Owner: the loop."""

    worker = ""
    record: Record | None = None
    """The record of the running call."""
    coroutine: Coroutine[Any, Any, object] | None = None
    """The running call."""
    ending: Failure | Interrupted | None = None
    """Why the call is ended from outside: a Failure if that makes its record fail."""

    def get_name(self) -> str:
        """Return the worker, topic, partition and offset: ``wc-charge orders[3]@1234``."""
        record = self.record
        if record is None:
            return f"wc-{self.worker} idle"
        return f"wc-{self.worker} {record.topic}[{record.partition}]@{record.offset}"


async def call_each(slice_: Slice, caller: Caller, task: CallTask) -> bool:
    """Call the handler for each record of the slice, except those taken back meanwhile.

    Returns False if the task must not be used again, because it was cancelled or a call left
    something in its context. Another task then continues the slice.
    """
    handler = caller.handler
    call = slice_.call
    is_cancelled = task.cancelling
    name_record = current_slot.set
    held_lanes = _held_lanes(slice_)
    for message in slice_.unclaimed:
        if held_lanes and slice_.lane_of and slice_.lane_of(message) in held_lanes:
            slice_.deviate().held.append(message)
            continue
        task.record = record = Record()
        record._message = message
        record._call = call
        name_record(record)
        try:
            task.coroutine = coroutine = handler(record)
            if type(coroutine) is not _COROUTINE:
                task.coroutine = coroutine = _returned(coroutine)
            returned = await coroutine
            if returned is not None and task.ending is None:
                record_results(slice_, (message,), returned)
                held_lanes = _held_lanes(slice_)
        except BaseException as error:
            if _is_thrown_away(error):
                raise
            if task.ending is None:
                record_raised(slice_, message, error, caller)
                held_lanes = _held_lanes(slice_)
        if task.ending is not None:
            _record_end(slice_, message, task.ending)
            return False
        if is_cancelled() or len(copy_context()) != 1:
            return False
    return True


async def call_batch(slice_: Slice, caller: Caller, task: CallTask) -> bool:
    """Call the handler once for all records of the slice; see ``call_each``."""
    records = claim_all(slice_)
    if not records:
        return True
    task.record = records[0]
    current_slot.set(Slot(batch=records))
    try:
        # The handler may change its list, so it gets a copy.
        task.coroutine = coroutine = caller.handler(records.copy())
        if type(coroutine) is not _COROUTINE:
            task.coroutine = coroutine = _returned(coroutine)
        returned = await coroutine
        if task.ending is None:
            record_answer(slice_, records, returned)
    except BaseException as error:
        if _is_thrown_away(error):
            raise
        if task.ending is None:
            record_error(slice_, caller, records, error)
    if task.ending is not None:
        slice_.deviations = None
        for record in records:
            _record_end(slice_, record._message, task.ending)
        return False
    return not task.cancelling() and len(copy_context()) == 1


def leaves_traces() -> bool:
    """Return whether a call has set a variable in the task's context and not reset it."""
    return len(copy_context()) != 1


def apart(handler: Callable[[Any], Any]) -> Callable[[Any], Coroutine[Any, Any, object]]:
    """Return a handler that leaves nothing behind, because each call has its own context."""

    async def call(argument: object) -> object:
        return await _steps(copy_context(), handler, argument)

    return call


@types.coroutine
def _steps(
    context: Context, handler: Callable[[Any], Any], argument: object
) -> Generator[object, Any, object]:
    """Run each step of a call in its own context, as if in its own task."""
    run = context.run
    task: Any = asyncio.current_task()
    coroutine: Any = run(handler, argument)
    if type(coroutine) is not _COROUTINE:
        coroutine = _returned(coroutine)
    task.coroutine = coroutine
    try:
        waits_for = run(coroutine.send, None)
        while True:
            try:
                value = yield waits_for
            except GeneratorExit:
                coroutine.close()
                raise
            except BaseException as error:
                waits_for = run(coroutine.throw, error)
            else:
                waits_for = run(coroutine.send, value)
    except StopIteration as end:
        return end.value


def _is_thrown_away(error: BaseException) -> bool:
    """Return whether the task is discarded while a call waits, so that nothing follows.

    Python closes the call first and raises GeneratorExit directly at the await; one raised by a
    handler comes from deeper frames.
    """
    trace = error.__traceback__
    return isinstance(error, GeneratorExit) and (trace is None or trace.tb_next is None)


async def _returned(value: Awaitable[object] | object) -> object:
    """Await the result of a plain function that calls a coroutine function."""
    return await value if isawaitable(value) else value


def _record_end(slice_: Slice, message: Message, ending: Failure | Interrupted) -> None:
    """Record a call that was ended. It never counts as a success."""
    if isinstance(ending, Failure):
        slice_.deviate().failed.append((message, ending))
    else:
        slice_.deviate().held.append(message)


def _held_lanes(slice_: Slice) -> set[Lane]:
    """Return the lanes of unfinished records; nothing else of them may start."""
    noted = slice_.deviations
    if noted is None or slice_.lane_of is None:
        return set()
    open_ = [message for message, _ in noted.failed]
    open_ += [message for each in noted.returned for message in each.messages]
    return set(map(slice_.lane_of, open_)) - {None}
