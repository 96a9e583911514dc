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
from window_consumer.runtime.batch_calls import BatchHandler, claim_all, note_answer, note_error
from window_consumer.runtime.current import Slot, current_slot
from window_consumer.runtime.returns import note_results
from window_consumer.runtime.thread_pool import Caller


class Interrupted:
    """A call is ended because its partition is given up; its record stays open."""


INTERRUPTED: Final = Interrupted()

_WAITS: Final = object()
_COROUTINE: Final = types.CoroutineType


class _ClosedError(BaseException):
    """The task is thrown away while a call waits: nothing follows."""


class CallTask(asyncio.Task[None]):
    """The task of a slot; while a call runs it is named after its record. Owner: the loop."""

    worker = ""
    record: Record | None = None
    """Whose handler is being called."""
    coroutine: Coroutine[Any, Any, object] | None = None
    """The last call that waited for something."""
    waits_for: object = None
    """What its first step gave the loop to wait for."""
    ending: Failure | Interrupted | None = None
    """Why the call is ended from outside: a failure where its record is to climb for it."""

    def get_name(self) -> str:
        """Return the worker, topic, partition and offset: ``wc-charge orders[3]@1234``."""
        record = self.record
        if record is None:
            return f"wc-{self.worker} idle"
        return f"wc-{self.worker} {record.topic}[{record.partition}]@{record.offset}"


@types.coroutine
def call_each(  # noqa: C901, PLR0912 - a thousand calls wait at once: each function more is 5 %
    slice_: Slice, caller: Caller, task: CallTask, on_wait: Callable[[], object]
) -> Generator[object, Any, bool]:
    """Call the handler for each record of the slice that is not taken back meanwhile.

    ``on_wait`` is called before the task waits for the first time in a call. Returns False where
    the task must not be used any more, because somebody has cancelled it; another one goes on with
    the rest of the slice.
    """
    handler = caller.handler
    call = slice_.call
    is_cancelled = task.cancelling
    held_lanes = _held_lanes(slice_)
    for message in slice_.unclaimed:
        if held_lanes and slice_.lane_of and slice_.lane_of(message) in held_lanes:
            slice_.deviate().held.append(message)
            continue
        task.record = record = Record()
        record._message = message
        record._call = call
        # Each step is taken in the context of the call, as in a task of its own.
        run = copy_context().run
        try:
            returned = run(begin, handler, record, task)
            if returned is _WAITS:
                on_wait()
                coroutine: Any = task.coroutine
                waits_for = task.waits_for
                try:
                    while True:
                        try:
                            value = yield waits_for
                        except GeneratorExit:
                            coroutine.close()
                            raise _ClosedError from None
                        except BaseException as error:
                            waits_for = run(coroutine.throw, error)
                        else:
                            waits_for = run(coroutine.send, value)
                except StopIteration as end:
                    returned = end.value
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
        if is_cancelled():
            return False
    return True


async def call_batch(
    slice_: Slice, caller: Caller, task: CallTask, on_wait: Callable[[], object]
) -> bool:
    """Call the handler for all records of the slice at once; see ``call_each``."""
    records = claim_all(slice_)
    if not records:
        return True
    on_wait()
    task.record = records[0]
    context = copy_context()
    context.run(current_slot.set, Slot(batch=records))
    try:
        returned = await _in_context(context, caller.handler, records, task)
        if task.ending is None:
            note_answer(slice_, records, returned)
    except _ClosedError:
        raise GeneratorExit from None
    except BaseException as error:
        if task.ending is None:
            note_error(slice_, caller, records, error)
    if task.ending is not None:
        slice_.deviations = None
        for record in records:
            _note_end(slice_, record._message, task.ending)
        return False
    return not task.cancelling()


@types.coroutine
def _in_context(
    context: Context, handler: BatchHandler, records: list[Record], task: CallTask
) -> Generator[object, Any, object]:
    """Take each step of a call in a context of its own, as in a task of its own."""
    run = context.run
    coroutine: Any = run(handler, records)
    if type(coroutine) is not types.CoroutineType:
        coroutine = _returned(coroutine)
    task.coroutine = coroutine
    try:
        waits_for = run(coroutine.send, None)
        while True:
            task.waits_for = waits_for
            try:
                value = yield waits_for
            except GeneratorExit:
                coroutine.close()
                raise _ClosedError from None
            except BaseException as error:
                waits_for = run(coroutine.throw, error)
            else:
                waits_for = run(coroutine.send, value)
    except StopIteration as end:
        return end.value


def begin(handler: Callable[[Record], object], record: Record, task: CallTask) -> object:
    """Take the first step of a call; return what it returned if that was all.

    Otherwise the task has what it waits for. Runs in the call's context.
    """
    current_slot.set(record)
    coroutine: Any = handler(record)
    if type(coroutine) is not _COROUTINE:
        coroutine = _returned(coroutine)
    try:
        task.waits_for = coroutine.send(None)
    except StopIteration as end:
        return end.value
    task.coroutine = coroutine
    return _WAITS


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
