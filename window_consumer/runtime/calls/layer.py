"""Layers: what surrounds the calls of a worker's handlers, each written once.

A layer takes a call and returns what is called instead. ``CallForm`` adapts it to the four forms of
calls, of a record or of a batch, of a function or of a coroutine function:

* ``before`` for a layer that decides before the call of a record, and lets it happen or raises;
* ``within`` for one that is entered and left around each call;
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
    """Where a layer stands, from the outside in.

    At ``ROUTES`` the records are divided among the handlers: layers before it surround the calls of
    the whole worker, layers after it those of each handler.
    """

    SPANS = 1
    """Sees everything, also records for which no handler is called."""
    EXPIRY = 2
    ROUTES = 3
    ONCE = 4
    MIDDLEWARE = 5
    """What the application itself puts around its handlers."""
    VALUES = 6
    """Makes ready what decoding needs."""
    DECODING = 7
    """Calls the function with the arguments that it takes."""


class CallStep(Protocol):
    """What happens around one call. Its methods do not raise."""

    def enter(self) -> None:
        """Begin, in the context of the call."""

    def carry(self, returned: object) -> object:
        """Return the result of the call, as it is or replaced. Not called for None."""

    def leave(self, error: BaseException | None) -> None:
        """End, in the same context; ``error`` is what the call raised."""


@frozen
class CallForm:
    """One of the four forms of calls."""

    batches: bool = False
    """A call gets a list of records."""
    coroutines: bool = False

    def before(self, each: Callable[[Called], Called], call: Called) -> Called:
        """Return the call behind what ``each`` does before the call of one record.

        ``each`` wraps a call of one record. Where it raises a HandlerSignal in a batch, that record
        is left out and has its outcome; the others are called.
        """
        if not self.batches:
            return each(call)
        return self.stepped(partial(_sifted, each(_accept), call))

    def within(self, begin: Callable[[Any], CallStep | None], call: Called) -> Called:
        """Return the call within the steps that ``begin`` returns; without one it is called alone.

        ``begin`` gets what the call gets.
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
    """What layers use of the process that makes the calls."""

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
    """The handler's name; empty where the calls are those of the whole worker."""


class ChildLayer(Protocol):
    """How a child process makes a layer. Pickled, so it holds plain values."""

    def begin(self) -> CallLayer | None:
        """Return the layer, None if the child needs none."""

    def around(self, lifespan: AbstractContextManager[Any]) -> AbstractContextManager[Any]:
        """Return the child's lifespan with what begins before it and ends after it."""


class CallLayer(Protocol):
    """A layer around the calls of one worker."""

    @property
    def place(self) -> LayerPlace:
        """Where it stands. Of two at one place, the first in the list is the outer one."""

    @property
    def in_children(self) -> ChildLayer | None:
        """Makes it in child processes.

        None for a layer that stays in this process, and for one of the application, which a child
        makes from its own import of that.
        """

    def refuse(self, form: CallForm) -> None:
        """Raise UsageError if it cannot surround such calls. Called before anything starts."""

    def wrap(self, call: Called, site: CallSite) -> Called:
        """Return what is called instead; ``call`` itself where there is nothing to do.

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
    """Make a call for the records that are left of a batch; ``failed`` have their outcome.

    ``translated`` returns what an exception of the call means, if it names something else.
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
