"""What makes a record's value into what a handler's annotation asks for.

JSON is the default. Which library reads it follows from the type: pydantic and msgspec read their
own models, cattrs everything else: attrs classes, dataclasses, TypedDicts, lists and dicts of them.
None of the optional ones is imported here: whoever has a model of theirs has imported it.
"""

from __future__ import annotations

import json
import sys
import types
import typing
from collections.abc import Callable, Iterator
from typing import Any, Union

import cattrs
from attrs import frozen
from cattrs.preconf.json import make_converter

from window_consumer.model.errors import Undecodable, UsageError
from window_consumer.model.record import Record
from window_consumer.model.record_lookup import first_topic

Decode = Callable[[Record], object]
Parse = Callable[[bytes], object]

_PLAIN: dict[object, Parse] = {
    bytes: lambda value: value,
    str: lambda value: value.decode(),
    object: json.loads,
    Any: json.loads,
}
_MESSAGE_CHARACTERS = 2_000
"""Of what a decoder says: some quote all of a value."""


@frozen
class Decoder:
    """Makes a record's value into an object of one type."""

    parse: Callable[[Record, bytes], object]
    name: str
    """What it makes, for messages."""
    nullable: bool
    """A tombstone, which has no value, is None for the handler."""

    def __call__(self, record: Record) -> object:
        """Return the object; raises Undecodable with the decoder's own message."""
        value = record.value
        if value is None:
            if self.nullable:
                return None
            raise Undecodable(
                f"a tombstone, which has no value, is no {self.name}; annotate the parameter with"
                f" `{self.name} | None` to get them as None"
            )
        try:
            return self.parse(record, value)
        except Exception as error:
            raise Undecodable(f"no {self.name}: {_said_by(error)}") from error


def decoder_of(annotation: object) -> Decoder:
    """Return the decoder for a type; UsageError where nothing can make it of JSON."""
    kinds = list(_mentioned(annotation))
    nullable = type(None) in kinds[1:] or annotation in (Any, object)
    bare = _without_none(annotation) if nullable else annotation
    parse = _PLAIN.get(bare) if isinstance(bare, type) or bare is Any else None
    if parse is None:
        parse = _of_pydantic(bare, kinds) or _of_msgspec(bare, kinds) or _of_cattrs(bare)
    return Decoder(_ignoring_the_record(parse), name_of(bare), nullable)


def decoder_by(deserialiser: Any, annotation: object) -> Decoder:
    """Return a decoder that the application brings: a function of bytes, or one of Confluent's.

    Those of ``confluent_kafka.schema_registry`` are asked with the topic of the first delivery and
    the headers, as they expect it.
    """
    nullable = annotation is None or type(None) in list(_mentioned(annotation))[1:]
    name = "value" if annotation is None else name_of(_without_none(annotation))
    module = sys.modules.get("confluent_kafka.serialization")
    if module is not None and isinstance(deserialiser, module.Deserializer):
        context, field = module.SerializationContext, module.MessageField.VALUE

        def parse(record: Record, value: bytes) -> object:
            topic = first_topic(record, lambda _topic: record.is_copy)
            return deserialiser(value, context(topic, field, record.headers))

        return Decoder(parse, name, nullable)
    if not callable(deserialiser):
        raise UsageError(
            f"value={deserialiser!r} is no decoder: it has to be a function of bytes, or a"
            " deserialiser of confluent_kafka"
        )
    return Decoder(_ignoring_the_record(deserialiser), name, nullable)


def name_of(annotation: object) -> str:
    """Return a type the way that people write it."""
    if isinstance(annotation, type) and typing.get_origin(annotation) is None:
        return annotation.__name__
    return str(annotation)


def _ignoring_the_record(parse: Parse) -> Callable[[Record, bytes], object]:
    return lambda _record, value: parse(value)


def _mentioned(annotation: object) -> Iterator[object]:
    """Yield a type and those that stand within its brackets."""
    yield annotation
    for argument in typing.get_args(annotation):
        yield from _mentioned(argument)


def _without_none(annotation: object) -> object:
    if typing.get_origin(annotation) not in (Union, types.UnionType):
        return annotation
    others = tuple(each for each in typing.get_args(annotation) if each is not type(None))
    return Union[others]  # noqa: UP007 - made of types that are only known here


def _subclasses(kinds: list[object], module: str, base: str) -> bool:
    known = getattr(sys.modules.get(module), base, None)
    return known is not None and any(isinstance(k, type) and issubclass(k, known) for k in kinds)


def _of_pydantic(annotation: object, kinds: list[object]) -> Parse | None:
    is_dataclass = any(hasattr(kind, "__pydantic_validator__") for kind in kinds)
    if not (is_dataclass or _subclasses(kinds, "pydantic", "BaseModel")):
        return None
    parse: Parse = sys.modules["pydantic"].TypeAdapter(annotation).validate_json
    return parse


def _of_msgspec(annotation: object, kinds: list[object]) -> Parse | None:
    if not _subclasses(kinds, "msgspec", "Struct"):
        return None
    parse: Parse = sys.modules["msgspec"].json.Decoder(annotation).decode
    return parse


def _of_cattrs(annotation: Any) -> Parse:
    try:
        structure = _CONVERTER.get_structure_hook(annotation)
    except Exception as error:
        raise UsageError(
            f"nothing can make {name_of(annotation)} of JSON ({_said_by(error)}); use an attrs"
            " class, a dataclass, a TypedDict, a msgspec Struct, a pydantic model, or name a"
            " decoder with value="
        ) from None
    return lambda value: structure(json.loads(value), annotation)


def _strictly(*kinds: type) -> Callable[[Any, Any], Any]:
    """Take a value as it stands: cattrs alone would make text of numbers and of null."""

    def check(value: Any, kind: Any) -> Any:
        if type(value) not in kinds:
            raise TypeError(f"{value!r} is no {kind.__name__}")
        return kind(value)

    return check


_CONVERTER = make_converter()
_CONVERTER.register_structure_hook(str, _strictly(str))
_CONVERTER.register_structure_hook(int, _strictly(int))
_CONVERTER.register_structure_hook(float, _strictly(float, int))
_CONVERTER.register_structure_hook(bool, _strictly(bool))


def _said_by(error: Exception) -> str:
    if isinstance(error, ExceptionGroup):
        text = "; ".join(cattrs.transform_error(error))
    else:
        text = str(error) or type(error).__name__
    return text[:_MESSAGE_CHARACTERS]
