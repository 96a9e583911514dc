"""The parameters of a handler: the record, its value as an object, or both."""

from __future__ import annotations

import inspect
import typing
from collections.abc import Callable
from typing import Any

from attrs import frozen

from window_consumer.model.errors import UsageError
from window_consumer.model.record import Record
from window_consumer.plan.handler_types.decoders import Decoder, decoder_by, decoder_of, name_of
from window_consumer.runtime.calls.layer import CallForm
from window_consumer.runtime.calls.steps import Called

_FORMS = "(record: Record), (value: Order) or (value: Order, record: Record)"


@frozen
class Parameters:
    """How to call a function for a record."""

    decoder: Decoder | None = None
    """Makes the value; None where the function takes only the record."""
    with_record: bool = True
    record_first: bool = False

    def arguments(self, record: Record) -> tuple[object, ...]:
        """Return the arguments for the function; raise Undecodable."""
        if self.decoder is None:
            return (record,)
        value = self.decoder(record)
        if not self.with_record:
            return (value,)
        return (record, value) if self.record_first else (value, record)

    def called_with(self, function: Callable[..., Any], _form: CallForm) -> Called:
        """Return a callable of the record alone; the function itself if it takes only that."""
        decode = self.decoder
        if decode is None:
            return function
        if not self.with_record:
            return lambda record: function(decode(record))
        if self.record_first:
            return lambda record: function(record, decode(record))
        return lambda record: function(decode(record), record)


def parameters_of(function: Callable[..., object], value: Any, what: str) -> Parameters:
    """Read a function's signature; ``value`` is a decoder named by the decorator.

    Raises UsageError for functions that cannot be called with a record, or whose annotations cannot
    be read or decoded.
    """
    names = required(function, what)
    hints = hints_of(function, what)
    of_record = [name for name in names if hints.get(name) is Record]
    others = [name for name in names if name not in of_record]
    if len(of_record) > 1 or not 1 <= len(names) <= 2:
        raise UsageError(
            f"{what}: a handler takes {_FORMS}; this one takes ({', '.join(names) or 'nothing'})"
        )
    if len(names) == 2 and not of_record:
        others = names[:1]  # the second one is the record, annotated or not
        _expect_no_annotation(hints, names[1], what)
    if len(names) == 1 and value is None and hints.get(names[0], Any) in (Any, object):
        others = []  # without any hint, it takes the record
    if not others:
        if value is not None:
            raise UsageError(f"{what}: value= is given, but no parameter takes the value: {_FORMS}")
        return Parameters()
    annotation = hints.get(others[0])
    if value is None and Record in typing.get_args(annotation):
        raise UsageError(
            f"{what}: parameter {others[0]!r} is annotated with {name_of(annotation)}: a handler"
            " gets one record, which is a Record; lists of them are for @app.batch_handler"
        )
    try:
        decoder = decoder_of(annotation or Any) if value is None else decoder_by(value, annotation)
    except UsageError as error:
        raise UsageError(f"{what}: parameter {others[0]!r}: {error}") from None
    return Parameters(decoder, len(names) > 1, record_first=names[0] != others[0])


def required(
    function: Callable[..., object], what: str, forms: str = _FORMS, unknown: str = "record"
) -> list[str]:
    """Return the names of the parameters that a call must pass; ``unknown`` for hidden ones.

    Raises UsageError, which lists the possible ``forms``, for parameters that no call passes.
    """
    try:
        parameters = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):
        return [unknown]  # written in C, or hidden: it gets the record
    needed = [each for each in parameters if each.default is inspect.Parameter.empty]
    named = [each for each in needed if each.kind is inspect.Parameter.KEYWORD_ONLY]
    if named:
        raise UsageError(f"{what}: a handler takes {forms}; {named[0].name!r} is keyword-only")
    plain = [each for each in needed if each.kind is not inspect.Parameter.VAR_KEYWORD]
    several = [each for each in plain if each.kind is inspect.Parameter.VAR_POSITIONAL]
    if several:
        return [unknown]  # wrapped by a decorator that hides its parameters
    return [each.name for each in plain]


def hints_of(function: Callable[..., object], what: str) -> dict[str, Any]:
    """Return a function's annotations; raise UsageError if they cannot be read."""
    bare = inspect.unwrap(function)
    bare = getattr(bare, "func", bare)  # functools.partial
    if inspect.isclass(bare):
        bare = bare.__init__  # calling a class calls this
    elif not hasattr(bare, "__annotations__"):
        bare = type(bare).__call__  # a callable object
    try:
        return typing.get_type_hints(bare)
    except Exception as error:
        raise UsageError(
            f"{what}: its annotations cannot be read ({error}): a type that a handler takes has to"
            " be importable where the handler is defined, not only for type checkers"
        ) from None


def _expect_no_annotation(hints: dict[str, Any], name: str, what: str) -> None:
    if name in hints:
        raise UsageError(
            f"{what}: parameter {name!r} is neither the value nor annotated with Record: {_FORMS}"
        )
