"""Decoders from a record's value to the type of a handler's annotation.

JSON is the default. The type decides the library: pydantic and msgspec read their own models;
cattrs reads attrs classes, dataclasses, TypedDicts, and lists and dicts of them. A class that
protoc has generated reads Protobuf. This module imports no optional library, because an application
with such a model has imported it.

If a schema registry does not answer, the value may be valid, so the record is retried as after a
failed call. A value that cannot be decoded becomes a dead letter.
"""

from __future__ import annotations

import inspect
import json
import socket
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import cattrs
from attrs import frozen

from window_consumer.model.conditions.lookup import first_topic
from window_consumer.model.errors import HandlerSignal, Undecodable, UsageError
from window_consumer.model.record import Record
from window_consumer.plan.handler_types.annotations import (
    is_of_msgspec,
    is_of_pydantic,
    is_protobuf,
    mentioned,
    name_of,
    without_none,
)
from window_consumer.plan.handler_types.structures import structure_of

_BUILT_IN = (ConnectionError, TimeoutError, socket.gaierror)
# By name: a library was imported only if it made a request.
_CLASSES = {
    ("httpx", "TransportError"),
    ("httpx2", "TransportError"),
    ("requests", "ConnectionError"),
    ("requests", "Timeout"),
    ("urllib3", "HTTPError"),
    ("aiohttp", "ClientConnectionError"),
    ("confluent_kafka", "OAuthTokenError"),
}
_NO_SUCH_SCHEMA = range(40400, 40500)
_INVALID_SCHEMA = 422


def is_out_of_reach(error: BaseException) -> bool:
    """Return whether a service needed for decoding did not answer, or refused us."""
    return any(map(_is_no_answer, _causes(error)))


def _causes(error: BaseException) -> Iterator[BaseException]:
    cause: BaseException | None = error
    seen: list[BaseException] = []
    while cause is not None and cause not in seen:
        seen.append(cause)
        yield cause
        cause = cause.__cause__


def _is_no_answer(error: BaseException) -> bool:
    if isinstance(error, _BUILT_IN):
        return True
    for kind in type(error).__mro__:
        package = kind.__module__.partition(".")[0]
        if (package, kind.__name__) in _CLASSES:
            return True
        if (package, kind.__name__) == ("confluent_kafka", "SchemaRegistryError"):
            return not is_about_the_value(error)
    return False


def is_about_the_value(error: BaseException) -> bool:
    """Return whether a ``SchemaRegistryError`` says that the value's schema is missing or invalid.

    The status 404 alone does not: a wrong URL, or a proxy, answers with it as well. Only a registry
    adds a code of its own.
    """
    if getattr(error, "http_status_code", None) == _INVALID_SCHEMA:
        return True
    return getattr(error, "error_code", None) in _NO_SUCH_SCHEMA


Parse = Callable[[bytes], object]

_PLAIN: dict[object, Parse] = {
    bytes: lambda value: value,
    str: lambda value: value.decode(),
    object: json.loads,
    Any: json.loads,
}
_MESSAGE_CHARACTERS = 2_000
"""The limit for a decoder's message; some messages quote a whole value."""


@frozen
class Decoder:
    """Decodes a record's value into an object of one type."""

    parse: Callable[[Record, bytes], object]
    name: str
    """The name of the type, for messages."""
    nullable: bool
    """Whether a tombstone, which has no value, is None for the handler."""
    annotation: object = Any
    """The type, without ``| None``."""
    is_own: bool = False
    """Whether the application chose it with ``value=``."""

    def __call__(self, record: Record) -> object:
        """Return the object; raise Undecodable with the decoder's own message.

        Handler signals and errors of unreachable services pass unchanged.
        """
        value = record.value
        if value is None:
            if self.nullable:
                return None
            raise Undecodable(
                f"a tombstone has no value and cannot be {self.name}; annotate the parameter with"
                f" `{self.name} | None` to get tombstones as None"
            )
        try:
            return self.parse(record, value)
        except HandlerSignal:
            raise
        except Exception as error:
            if is_out_of_reach(error):
                raise
            raise Undecodable(f"invalid {self.name}: {_reason_of(error)}") from error


def decoder_of(annotation: object) -> Decoder:
    """Return the decoder for a type; raise UsageError if JSON cannot become it."""
    kinds = list(mentioned(annotation))
    nullable = type(None) in kinds[1:] or annotation in (Any, object)
    bare = without_none(annotation) if nullable else annotation
    parse = _PLAIN.get(bare) if isinstance(bare, type) or bare is Any else None
    if parse is None:
        parse = (
            _of_pydantic(bare, kinds)
            or _of_msgspec(bare, kinds)
            or _of_protobuf(bare)
            or _of_cattrs(bare)
        )
    return Decoder(_ignoring_the_record(parse), name_of(bare), nullable, bare)


def decoder_by(deserialiser: Any, annotation: object) -> Decoder:
    """Return the application's own decoder: a function of bytes, or a Confluent deserialiser.

    Deserialisers of ``confluent_kafka.schema_registry`` get the topic of the first delivery and the
    headers, as they expect it.
    """
    nullable = annotation is None or type(None) in list(mentioned(annotation))[1:]
    name = "value" if annotation is None else name_of(without_none(annotation))
    why_not = _why_no_decoder(deserialiser)
    if why_not:
        raise UsageError(
            f"value={deserialiser!r} is not a decoder: {why_not}; it must be a function of bytes,"
            " or a deserialiser of confluent_kafka"
        )
    module = sys.modules.get("confluent_kafka.serialization")
    if module is not None and isinstance(deserialiser, module.Deserializer):
        context, field = module.SerializationContext, module.MessageField.VALUE

        def parse(record: Record, value: bytes) -> object:
            topic = first_topic(record, lambda _topic: record.is_copy)
            return deserialiser(value, context(topic, field, record.headers))

        return Decoder(parse, name, nullable, is_own=True)
    return Decoder(_ignoring_the_record(deserialiser), name, nullable, is_own=True)


def _why_no_decoder(deserialiser: Any) -> str:
    """Return why something is not a decoder; empty for a decoder."""
    if not callable(deserialiser):
        return "it cannot be called"
    bare = inspect.unwrap(deserialiser)
    call = bare if inspect.isroutine(bare) or inspect.isclass(bare) else type(bare).__call__
    makes_none = (
        inspect.iscoroutinefunction,
        inspect.isgeneratorfunction,
        inspect.isasyncgenfunction,
    )
    if any(test(each) for test in makes_none for each in (bare, call)) or any(
        each.__name__ == "AsyncBaseDeserializer" for each in type(bare).__mro__
    ):
        return "it returns a coroutine or a generator, not a value; use a plain function"
    try:
        inspect.signature(deserialiser).bind(b"")
    except TypeError as error:
        return f"it cannot be called with the value alone ({error})"
    except ValueError:
        return ""  # written in C, without a signature
    return ""


def _ignoring_the_record(parse: Parse) -> Callable[[Record, bytes], object]:
    return lambda _record, value: parse(value)


def _of_pydantic(annotation: object, kinds: list[object]) -> Parse | None:
    if not is_of_pydantic(kinds):
        return None
    with _refused(annotation):
        adapter = sys.modules["pydantic"].TypeAdapter(annotation)
        if not getattr(adapter, "pydantic_complete", True):
            adapter.rebuild(raise_errors=True)  # names the type that it does not find
    parse: Parse = adapter.validate_json
    return parse


def _of_msgspec(annotation: object, kinds: list[object]) -> Parse | None:
    if not is_of_msgspec(kinds):
        return None
    msgspec = sys.modules["msgspec"]
    with _refused(annotation):
        decoder = msgspec.json.Decoder(annotation)
        for strange in _strange_to(msgspec, msgspec.inspect.type_info(annotation)):
            raise TypeError(f"msgspec has no form for {name_of(strange)}")
    parse: Parse = decoder.decode
    return parse


def _strange_to(msgspec: Any, outermost: Any) -> Iterator[object]:
    """Yield the classes within a type that msgspec accepts but cannot decode."""
    seen: dict[int, Any] = {}
    left = [outermost]
    while left:
        each = left.pop()
        if isinstance(each, tuple | list):
            left += each
        elif (
            isinstance(each, msgspec.inspect.Type | msgspec.inspect.Field) and id(each) not in seen
        ):
            seen[id(each)] = each
            if isinstance(each, msgspec.inspect.CustomType):
                yield each.cls
            left += [getattr(each, name) for name in each.__struct_fields__]


def _of_protobuf(annotation: Any) -> Parse | None:
    return annotation.FromString if is_protobuf(annotation) else None


def _of_cattrs(annotation: Any) -> Parse:
    with _refused(annotation):
        structure = structure_of(annotation)
    return lambda value: structure(json.loads(value), annotation)


@contextmanager
def _refused(annotation: object) -> Iterator[None]:
    """Raise UsageError for a library's error about a type that it cannot build."""
    try:
        yield
    except Exception as error:
        why = _reason_of(error)
        if isinstance(error, cattrs.StructureHandlerNotFoundError):
            why = f"it has no form for {name_of(error.type_)}"
        raise UsageError(
            f"JSON cannot be decoded into {name_of(annotation)} ({why}); use an attrs class, a"
            " dataclass, a TypedDict, a msgspec Struct, a pydantic model, or name a decoder with"
            " value="
        ) from None


def _reason_of(error: Exception) -> str:
    if isinstance(error, ExceptionGroup):
        text = "; ".join(cattrs.transform_error(error))
    elif isinstance(error, KeyError):
        text = f"KeyError: {error}"  # its text would be only the key
    else:
        text = str(error) or type(error).__name__
    return text[:_MESSAGE_CHARACTERS]
