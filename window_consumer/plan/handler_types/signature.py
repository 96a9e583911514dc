"""Reads a handler's parameters from its signature."""

from __future__ import annotations

import inspect
import typing
from collections.abc import Callable, Collection, Iterable, Sequence
from typing import Any

from window_consumer.model.errors import UsageError
from window_consumer.model.record import Record
from window_consumer.plan.handler_types.annotations import name_of
from window_consumer.plan.handler_types.decoders import decoder_by, decoder_of
from window_consumer.plan.handler_types.parameters import Parameters

_FORMS = "(record: Record), (value: Order) or (value: Order, record: Record)"
_BATCH_FORMS = (
    "(records: list[Record]), (values: list[Order]) or (values: list[Order], records: list[Record])"
)
_LISTS = (list, Sequence, Collection, Iterable)
_ANYTHING = (None, Any, object, *_LISTS)


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


def batch_parameters_of(function: Callable[..., object], value: Any, what: str) -> Parameters:
    """Read a batch handler's signature; ``value`` is a decoder named by the decorator.

    Raises UsageError for functions that cannot be called with a list of records, or whose
    annotations cannot be read or decoded.
    """
    names = required(function, what, _BATCH_FORMS, "records")
    hints = hints_of(function, what)
    of_records = [name for name in names if _element(hints.get(name)) is Record]
    others = [name for name in names if name not in of_records]
    if len(of_records) > 1 or not 1 <= len(names) <= 2:
        raise UsageError(
            f"{what}: a batch handler takes {_BATCH_FORMS}; this one takes"
            f" ({', '.join(names) or 'nothing'})"
        )
    if len(names) == 2 and not of_records:
        if hints.get(names[1]) not in _ANYTHING:
            raise UsageError(
                f"{what}: parameter {names[1]!r} is neither the values nor annotated with"
                f" list[Record]: {_BATCH_FORMS}"
            )
        others = names[:1]
    if len(names) == 1 and value is None and hints.get(names[0]) in _ANYTHING:
        others = []  # without any hint, it takes the records
    if not others:
        if value is not None:
            raise UsageError(
                f"{what}: value= is given, but no parameter takes the values: {_BATCH_FORMS}"
            )
        return Parameters(batches=True)
    annotation = hints.get(others[0])
    element = _element(annotation)
    if element is None and annotation not in _ANYTHING:
        raise UsageError(
            f"{what}: parameter {others[0]!r} must be annotated with a list, such as list[Order]:"
            f" a batch handler takes {_BATCH_FORMS}"
        )
    try:
        decoder = decoder_of(element or Any) if value is None else decoder_by(value, element)
    except UsageError as error:
        raise UsageError(f"{what}: parameter {others[0]!r}: {error}") from None
    return Parameters(decoder, len(names) > 1, names[0] != others[0], batches=True)


def _element(annotation: object) -> object:
    """Return the element type of a list annotation; None for other types, or without one."""
    if typing.get_origin(annotation) not in _LISTS:
        return None
    (element,) = typing.get_args(annotation)
    return element


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
            f"{what}: its annotations cannot be read ({error}): a handler's types must be"
            " importable at run time where it is defined, not only for type checkers"
        ) from None


def _expect_no_annotation(hints: dict[str, Any], name: str, what: str) -> None:
    if name in hints:
        raise UsageError(
            f"{what}: parameter {name!r} is neither the value nor annotated with Record: {_FORMS}"
        )
