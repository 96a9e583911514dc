"""Decoders of values with a schema: the schema reads them, then they are converted for the handler.

Decoders of annotations expect JSON. A worker with a schema registry reads values differently, but
the result becomes the type of the annotation by the same libraries and rules.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from functools import partial
from typing import Any

from attrs import evolve

from window_consumer.model.record import Record
from window_consumer.plan.handler_types.annotations import is_of_msgspec, is_of_pydantic, mentioned
from window_consumer.plan.handler_types.decoders import Decoder
from window_consumer.plan.handler_types.structures import structure_of

ReadValue = Callable[[Record, bytes], object]
"""Reads a record's value, which is not None; raises what a decoder may raise."""

_UNCHANGED = (Any, object)


def reading_messages(decoder: Decoder, read: ReadValue) -> Decoder:
    """Return the decoder for values that are already read as the handler's type."""
    return evolve(decoder, parse=read)


def reading_json(decoder: Decoder, read: ReadValue) -> Decoder:
    """Return the decoder for values that are read as JSON: lists, dicts, texts and numbers."""
    if decoder.annotation in _UNCHANGED:
        return evolve(decoder, parse=read)
    parse = decoder.parse
    return evolve(
        decoder, parse=lambda record, value: parse(record, json.dumps(read(record, value)).encode())
    )


def reading_objects(decoder: Decoder, read: ReadValue) -> Decoder:
    """Return the decoder for values that are read as dicts that hold dates, decimals or bytes."""
    if decoder.annotation in _UNCHANGED:
        return evolve(decoder, parse=read)
    convert = _conversion_to(decoder.annotation)
    return evolve(decoder, parse=lambda record, value: convert(read(record, value)))


def _conversion_to(annotation: Any) -> Callable[[object], object]:
    """Return the function that builds a type from a dict with such objects.

    The decoder of the annotation has already checked the type.
    """
    kinds = list(mentioned(annotation))
    if is_of_pydantic(kinds):
        adapter = sys.modules["pydantic"].TypeAdapter(annotation)
        convert: Callable[[object], object] = adapter.validate_python
        return convert
    if is_of_msgspec(kinds):
        return partial(sys.modules["msgspec"].convert, type=annotation)
    structure = structure_of(annotation)
    return lambda value: structure(value, annotation)
