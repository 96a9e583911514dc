"""Layers around the calls of a worker's handlers, each written once.

A layer takes a call and returns a replacement. ``CallForm`` adapts it to the four forms of calls,
of a record or of a batch, of a function or of a coroutine function:

* ``before`` for a layer that decides before the call of a record: it permits the call or raises;
* ``within`` for a layer that is entered and left around each call;
* ``stepped`` for any other, as a generator that yields the calls to make.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractContextManager
from enum import IntEnum
from functools import partial
from inspect import isawaitable
from operator import attrgetter
from typing import Any, Protocol

from attrs import field, frozen

from window_consumer.model.conditions.lookup import IsCopy, WallMs
from window_consumer.model.errors import HandlerSignal
from window_consumer.model.log_events import Warn
from window_consumer.model.record import Record
from window_consumer.runtime.calls.batch_calls import Failed, SortedResults, answers_of, failed_of
from window_consumer.runtime.calls.steps import COROUTINE, Called, Steps, layered
from window_consumer.runtime.error_report import ErrorReports

__handler_layer__ = True  # its frames are no part of a failure, see runtime/stack.py


class LayerPlace(IntEnum):
    """The position of a layer, from the outside in.

    ``ROUTES`` divides the records among the handlers: layers before it surround the calls of the
    whole worker, layers after it those of each handler.
    """

    SPANS = 1
    """Sees everything, even records without a handler's call."""
    EXPIRY = 2
    ROUTES = 3
    ONCE = 4
    MIDDLEWARE = 5
    """The application's own layers around its handlers."""
    VALUES = 6
    """Prepares decoding."""
    DECODING = 7
    """Calls the function with the arguments that it takes."""


class CallStep(Protocol):
    """A context around one call. Its methods do not raise."""

    def enter(self) -> None:
        """Begin, in the context of the call."""

    def carry(self, returned: object) -> object:
        """Return the result of the call, unchanged or replaced. Not called for None."""

    def leave(self, error: BaseException | None) -> None:
        """End, in the same context; ``error`` is the call's exception."""


@frozen
class CallForm:
    """One of the four forms of calls."""

    batches: bool = False
    """A call gets a list of records."""
    coroutines: bool = False

    def before(self, each: Callable[[Called], Called], call: Called) -> Called:
        """Return the call with ``each`` before it.

        ``each`` wraps a call of one record. If it raises a HandlerSignal for a record of a batch,
        that record is omitted and has its outcome; the others are called.
        """
        if not self.batches:
            return each(call)
        return self.stepped(partial(_sifted, each(_accept), call))

    def within(self, begin: Callable[[Any], CallStep | None], call: Called) -> Called:
        """Return the call within the steps that ``begin`` returns; without any, the call alone.

        ``begin`` gets the same arguments as the call.
        """
        around = self.entered

        def call_within(given: Any) -> object:
            step = begin(given)
            return call(given) if step is None else around(step, call, given)

        return call_within

    @property
    def entered(self) -> Callable[[CallStep, Called, Any], Any]:
        """Makes one call within a step."""
        return _entered_coroutine if self.coroutines else _entered

    def stepped(self, steps: Callable[[Any], Steps]) -> Called:
        """Return a call that runs these steps."""
        return layered(steps, coroutines=self.coroutines)


@frozen
class CallTools:
    """The parts of the calling process that layers use."""

    is_copy: IsCopy
    wall_ms: WallMs
    warn: Warn = lambda _event, _text: None
    faults: ErrorReports = field(factory=ErrorReports)
    """Describes exceptions of handlers."""


@frozen
class CallSite:
    """The calls that a layer surrounds."""

    form: CallForm
    tools: CallTools
    handler: str = ""
    """The handler's name; empty for the calls of the whole worker."""


class ChildLayer(Protocol):
    """How a child process builds a layer. Pickled, so it holds plain values."""

    def begin(self) -> CallLayer | None:
        """Return the layer, None if the child needs none."""

    def around(self, lifespan: AbstractContextManager[Any]) -> AbstractContextManager[Any]:
        """Return the child's lifespan within the layer's own context."""


class CallLayer(Protocol):
    """A layer around the calls of one worker."""

    @property
    def place(self) -> LayerPlace:
        """Its position. Of two at the same position, the first in the list is the outer one."""

    @property
    def in_children(self) -> ChildLayer | None:
        """Builds it in child processes.

        None for a layer that stays in this process, and for the application's own layers, which a
        child gets by importing the application.
        """

    def refuse(self, form: CallForm) -> None:
        """Raise UsageError if it cannot surround such calls. Called before anything starts."""

    def wrap(self, call: Called, site: CallSite) -> Called:
        """Return the replacement of ``call``; ``call`` itself if there is nothing to do.

        Any slot may call the result, several at once.
        """


def in_order(layers: Iterable[CallLayer]) -> list[CallLayer]:
    """Return layers from the outside in."""
    return sorted(layers, key=attrgetter("place"))


def surrounded(call: Called, layers: Sequence[CallLayer], site: CallSite) -> Called:
    """Return a call within layers, the first of which is the outermost."""
    for layer in reversed(layers):
        call = layer.wrap(call, site)
    return call


def called_without(
    failed: Sequence[Failed],
    left: list[Record],
    call: Callable[[], Any],
    translated: Callable[[BaseException], BaseException] = lambda error: error,
) -> Steps:
    """Make a call for the remaining records of a batch; ``failed`` have their outcome.

    ``translated`` converts exceptions of the call that name something other than records.
    """
    if not left:
        raise SortedResults(failed)
    try:
        returned = yield call
    except GeneratorExit:
        raise  # the steps were dropped
    except BaseException as error:
        meant = translated(error)
        if meant is error and not failed:
            raise
        every = [*failed, *failed_of(meant, left)]
        if isinstance(error, SortedResults):
            raise SortedResults(every, error.handlers, error.answers) from error
        raise SortedResults(every) from error
    if failed:
        raise SortedResults(failed, answers=answers_of(left, returned))
    return returned


def _sifted(judge: Called, call: Called, records: list[Record]) -> Steps:
    """Call with those records of a batch for which ``judge`` raises no signal."""
    failed: list[Failed] = []
    for record in records:
        try:
            judge(record)
        except HandlerSignal as signal:
            failed.append((record, signal))
    left = records
    if failed:
        gone = {id(record) for record, _ in failed}
        left = [record for record in records if id(record) not in gone]
    return (yield from called_without(failed, left, partial(call, left)))


def _accept(_record: Record) -> None:
    """Let the record be called."""


def _entered(step: CallStep, call: Called, given: Any) -> object:
    step.enter()
    try:
        returned = call(given)
    except BaseException as error:
        step.leave(error)
        raise
    if returned is not None:
        returned = step.carry(returned)
    step.leave(None)
    return returned


async def _entered_coroutine(step: CallStep, call: Called, given: Any) -> object:
    step.enter()
    try:
        returned = call(given)
        if type(returned) is COROUTINE or isawaitable(returned):
            returned = await returned
    except BaseException as error:
        step.leave(error)
        raise
    if returned is not None:
        returned = step.carry(returned)
    step.leave(None)
    return returned
