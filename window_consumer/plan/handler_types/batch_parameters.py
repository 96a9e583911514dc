"""The parameters of a batch handler: the records, their values as objects, or both."""

from __future__ import annotations

import typing
from collections.abc import Callable, Collection, Iterable, Sequence
from functools import partial
from typing import Any

from attrs import frozen

from window_consumer.model.errors import HandlerSignal, NotInBatchError, PartialFailure, UsageError
from window_consumer.model.record import Record
from window_consumer.plan.handler_types.decoders import Decoder, decoder_by, decoder_of
from window_consumer.plan.handler_types.parameters import hints_of, required
from window_consumer.runtime.calls.batch_calls import Failed
from window_consumer.runtime.calls.layer import CallForm, called_without
from window_consumer.runtime.calls.steps import Called, Steps

_FORMS = (
    "(records: list[Record]), (values: list[Order]) or (values: list[Order], records: list[Record])"
)
_LISTS = (list, Sequence, Collection, Iterable)
_ANYTHING = (None, Any, object, *_LISTS)


@frozen
class BatchParameters:
    """How to call a function for a list of records."""

    decoder: Decoder | None = None
    """Makes each value; None where the function takes only the records."""
    with_records: bool = True
    records_first: bool = False

    def arguments(self, records: list[Record]) -> tuple[object, ...]:
        """Return the arguments for the function; raise Undecodable."""
        if self.decoder is None:
            return (records,)
        return self._arguments(list(map(self.decoder, records)), records)

    def called_with(self, function: Called, form: CallForm) -> Called:
        """Return a callable of the records alone; the function itself if it takes only those.

        Records that cannot be decoded are removed and fail alone; the others are handled.
        """
        decode = self.decoder
        if decode is None:
            return function

        def steps(records: list[Record]) -> Steps:
            values: list[object] = []
            decoded: list[Record] = []
            failed: list[Failed] = []
            for record in records:
                try:
                    values.append(decode(record))
                    decoded.append(record)
                # this value's error; any other exception is the decoder's
                except HandlerSignal as error:
                    failed.append((record, error))

            def by_records(error: BaseException) -> BaseException:
                return _by_records(error, values, decoded)

            call = partial(function, *self._arguments(values, decoded))
            return (yield from called_without(failed, decoded, call, by_records))

        return form.stepped(steps)

    def _arguments(self, values: list[object], records: list[Record]) -> tuple[object, ...]:
        if not self.with_records:
            return (values,)
        return (records, values) if self.records_first else (values, records)


def batch_parameters_of(function: Callable[..., object], value: Any, what: str) -> BatchParameters:
    """Read a batch handler's signature; ``value`` is a decoder named by the decorator.

    Raises UsageError for functions that cannot be called with a list of records, or whose
    annotations cannot be read or decoded.
    """
    names = required(function, what, _FORMS, "records")
    hints = hints_of(function, what)
    of_records = [name for name in names if _element(hints.get(name)) is Record]
    others = [name for name in names if name not in of_records]
    if len(of_records) > 1 or not 1 <= len(names) <= 2:
        raise UsageError(
            f"{what}: a batch handler takes {_FORMS}; this one takes"
            f" ({', '.join(names) or 'nothing'})"
        )
    if len(names) == 2 and not of_records:
        if hints.get(names[1]) not in _ANYTHING:
            raise UsageError(
                f"{what}: parameter {names[1]!r} is neither the values nor annotated with"
                f" list[Record]: {_FORMS}"
            )
        others = names[:1]
    if len(names) == 1 and value is None and hints.get(names[0]) in _ANYTHING:
        others = []  # without any hint, it takes the records
    if not others:
        if value is not None:
            raise UsageError(
                f"{what}: value= is given, but no parameter takes the values: {_FORMS}"
            )
        return BatchParameters()
    annotation = hints.get(others[0])
    element = _element(annotation)
    if element is None and annotation not in _ANYTHING:
        raise UsageError(
            f"{what}: parameter {others[0]!r} has to be annotated with a list, such as list[Order]:"
            f" a batch handler takes {_FORMS}"
        )
    try:
        decoder = decoder_of(element or Any) if value is None else decoder_by(value, element)
    except UsageError as error:
        raise UsageError(f"{what}: parameter {others[0]!r}: {error}") from None
    return BatchParameters(decoder, len(names) > 1, records_first=names[0] != others[0])


def _element(annotation: object) -> object:
    """Return the element type of a list annotation; None for other types, or without one."""
    if typing.get_origin(annotation) not in _LISTS:
        return None
    (element,) = typing.get_args(annotation)
    return element


def _by_records(
    error: BaseException, values: Sequence[object], records: Sequence[Record]
) -> BaseException:
    """Return a failure that names records, given one of a handler that may name values.

    Any other exception is returned unchanged.
    """
    if not isinstance(error, PartialFailure):
        return error
    common = error if error.__cause__ is None else error.__cause__
    places: dict[int, list[Record]] = {}
    for value, record in zip(values, records, strict=True):
        places.setdefault(id(value), []).append(record)
    failed: list[tuple[Any, BaseException]] = []
    for named in error.failed:
        is_pair = (
            isinstance(named, tuple) and len(named) == 2 and isinstance(named[1], BaseException)
        )
        each, reason = named if is_pair else (named, common)
        owners = places.get(id(each), [each])
        if len(owners) > 1:
            stranger = NotInBatchError(
                f"PartialFailure names {each!r:.200}, which is the value of {len(owners)} records:"
                " all of the batch count as failed. Take the records as well and name those:"
                " (values: list[...], records: list[Record])"
            )
            stranger.__cause__ = error
            return stranger
        failed.append((owners[0], reason))
    return PartialFailure(failed)
