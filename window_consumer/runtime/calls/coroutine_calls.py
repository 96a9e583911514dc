"""What a slot on an event loop does with a slice: it awaits a coroutine for each of its records.

All calls of a slot are awaited by one task, so that what asks for the current task
(``asyncio.timeout``, ``TaskGroup``) finds one, whose name is that of the record. The task's context
holds the record and nothing else. A call that leaves something in it has spoilt it: the task must
not be used any more, and from then on calls had better be made ``apart``, which takes more time.
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
from window_consumer.model.record import (
    Message,
    Record,
)
from window_consumer.runtime.calls.batch_calls import (
    claim_all,
    record_answer,
    record_error,
)
from window_consumer.runtime.calls.caller import Caller, record_raised
from window_consumer.runtime.calls.result_guard import record_results
from window_consumer.runtime.context import (
    Slot,
    current_slot,
)

__handler_layer__ = True  # its frames are no part of a failure, see error_report.py


class Interrupted:
    """A call is ended because its partition is given up; its record stays open."""


INTERRUPTED: Final = Interrupted()

_COROUTINE: Final = types.CoroutineType


class CallTask(asyncio.Task[None]):
    """The task of a slot; while a call runs it is named after its record. Owner: the loop."""

    worker = ""
    record: Record | None = None
    """Whose handler is being called."""
    coroutine: Coroutine[Any, Any, object] | None = None
    """The call itself."""
    ending: Failure | Interrupted | None = None
    """Why the call is ended from outside: a failure where its record is to climb for it."""

    def get_name(self) -> str:
        """Return the worker, topic, partition and offset: ``wc-charge orders[3]@1234``."""
        record = self.record
        if record is None:
            return f"wc-{self.worker} idle"
        return f"wc-{self.worker} {record.topic}[{record.partition}]@{record.offset}"


async def call_each(slice_: Slice, caller: Caller, task: CallTask) -> bool:
    """Call the handler for each record of the slice that is not taken back meanwhile.

    Returns False where the task must not be used any more, because somebody has cancelled it or a
    call has left something in its context; another one goes on with the rest of the slice.
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
    """Call the handler for all records of the slice at once; see ``call_each``."""
    records = claim_all(slice_)
    if not records:
        return True
    task.record = records[0]
    current_slot.set(Slot(batch=records))
    try:
        # A list of its own: it may do with it what it likes.
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
    """Tell whether a call has set a context variable of the task's context and not reset it."""
    return len(copy_context()) != 1


def apart(handler: Callable[[Any], Any]) -> Callable[[Any], Coroutine[Any, Any, object]]:
    """Return a handler that leaves nothing behind: each call has a context of its own."""

    async def call(argument: object) -> object:
        return await _steps(copy_context(), handler, argument)

    return call


@types.coroutine
def _steps(
    context: Context, handler: Callable[[Any], Any], argument: object
) -> Generator[object, Any, object]:
    """Take each step of a call in a context of its own, as in a task of its own."""
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
    """Tell whether the task is thrown away while a call waits: nothing follows.

    Python closes the call first and raises this right where it was awaited; what a handler has
    raised itself comes from further below.
    """
    trace = error.__traceback__
    return isinstance(error, GeneratorExit) and (trace is None or trace.tb_next is None)


async def _returned(value: Awaitable[object] | object) -> object:
    """Await what a function returned that is no coroutine function itself but calls one."""
    return await value if isawaitable(value) else value


def _record_end(slice_: Slice, message: Message, ending: Failure | Interrupted) -> None:
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
