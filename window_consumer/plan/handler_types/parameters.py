"""A handler's parameters, and how a record or a batch becomes its arguments."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

from attrs import evolve, frozen

from window_consumer.model.errors import HandlerSignal, NotInBatchError, PartialFailure
from window_consumer.model.record import Record
from window_consumer.plan.handler_types.decoders import Decoder
from window_consumer.runtime.calls.batch_calls import Failed
from window_consumer.runtime.calls.layer import CallForm, CallSite, LayerPlace, called_without
from window_consumer.runtime.calls.steps import Called, Steps


@frozen
class Parameters:
    """How to call a function for a record, or for a list of them."""

    decoder: Decoder | None = None
    """Decodes a value; None if the function takes only the record, or the records."""
    with_record: bool = True
    """Whether it takes the record in addition to the value, or the records and values."""
    record_first: bool = False
    batches: bool = False
    """It gets lists."""

    def arguments(self, given: Any) -> tuple[object, ...]:
        """Return the arguments for a record or a list of them; raise Undecodable."""
        decode = self.decoder
        if decode is None:
            return (given,)
        return self._arguments(list(map(decode, given)) if self.batches else decode(given), given)

    def decoded_with(self, decoder: Decoder) -> Parameters:
        """Return the same parameters, with another decoder of values."""
        return evolve(self, decoder=decoder)

    def called_with(self, function: Callable[..., Any], form: CallForm) -> Called:
        """Return a callable that takes only the record or records; perhaps the function itself.

        Records of a batch that cannot be decoded fail alone; the others are handled.
        """
        decode = self.decoder
        if decode is None:
            return function
        if form.batches:
            return form.stepped(partial(self._decoded, function, decode))
        if not self.with_record:
            return lambda record: function(decode(record))
        if self.record_first:
            return lambda record: function(record, decode(record))
        return lambda record: function(decode(record), record)

    def _decoded(
        self, function: Callable[..., Any], decode: Decoder, records: list[Record]
    ) -> Steps:
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
        call = partial(function, *self._arguments(values, decoded))
        by_records = partial(_by_records, values, decoded)
        return (yield from called_without(failed, decoded, call, by_records))

    def _arguments(self, value: object, given: object) -> tuple[object, ...]:
        if not self.with_record:
            return (value,)
        return (given, value) if self.record_first else (value, given)


@frozen
class DecodingLayer:
    """Calls each function with the arguments that it takes."""

    parameters: Mapping[str, Parameters]
    """By the name of the handler."""
    place: LayerPlace = LayerPlace.DECODING
    in_children: None = None

    def refuse(self, form: CallForm) -> None:
        """Refuse nothing: a decorator already checked the signature."""

    def wrap(self, call: Called, site: CallSite) -> Called:
        """See CallLayer."""
        return self.parameters[site.handler].called_with(call, site.form)


def _by_records(
    values: Sequence[object], records: Sequence[Record], error: BaseException
) -> BaseException:
    """Return a handler's failure, which may name values, as one that names records.

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
                " the whole batch counts as failed. Take the records as well and name those:"
                " (values: list[...], records: list[Record])"
            )
            stranger.__cause__ = error
            return stranger
        failed.append((owners[0], reason))
    return PartialFailure(failed)
