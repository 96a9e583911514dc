"""Reads values with Confluent's deserialisers, and converts them for the handler."""

from __future__ import annotations

from contextvars import Context
from importlib import import_module
from typing import Any, NoReturn

from attrs import evolve
from confluent_kafka.schema_registry import topic_subject_name_strategy

from window_consumer.config.problems import InvalidError, Problem
from window_consumer.model.record import Record
from window_consumer.plan.handler_types.annotations import is_protobuf, name_of
from window_consumer.plan.handler_types.conversion import (
    ReadValue,
    reading_json,
    reading_messages,
    reading_objects,
)
from window_consumer.plan.handler_types.decoders import Decoder, decoder_by
from window_consumer.plan.handlers import HandlerSpec
from window_consumer.schema_registry.client import RegistryClient
from window_consumer.schema_registry.config import SECTION, SchemaConfig

_RULES = {"subject.name.strategy": topic_subject_name_strategy}
"""The default queries the registry again for each topic; only rules of a schema need subjects."""


def reading_handler(spec: HandlerSpec, config: SchemaConfig, client: RegistryClient) -> HandlerSpec:
    """Return a handler that gets values decoded by the registry's schemas.

    Raises InvalidError if it cannot get them.
    """
    decoder = spec.parameters.decoder
    if decoder is None:
        return spec
    if decoder.is_own:
        _refuse((), f"the handler {spec.name} has its own decoder: remove value= or schema")
    decoder = _DECODERS[config.format or "avro"](spec, decoder, config, client)
    return evolve(spec, parameters=spec.parameters.decoded_with(decoder))


def _of_avro(
    spec: HandlerSpec, decoder: Decoder, config: SchemaConfig, client: RegistryClient
) -> Decoder:
    del config
    _refuse_messages(spec, decoder)
    return reading_objects(decoder, _read(avro_deserialiser(client)))


def _of_json(
    spec: HandlerSpec, decoder: Decoder, config: SchemaConfig, client: RegistryClient
) -> Decoder:
    del config
    _refuse_messages(spec, decoder)
    return reading_json(decoder, _read(json_deserialiser(client)))


def _of_protobuf(
    spec: HandlerSpec, decoder: Decoder, config: SchemaConfig, client: RegistryClient
) -> Decoder:
    kind = _message_of(spec, decoder, config)
    deserialise = protobuf_deserialiser(kind, client)
    return reading_messages(evolve(decoder, name=kind.__name__), _read(deserialise))


_DECODERS = {"avro": _of_avro, "json": _of_json, "protobuf": _of_protobuf}


def avro_deserialiser(client: RegistryClient) -> Any:
    """Return Confluent's deserialiser of Avro."""
    from confluent_kafka.schema_registry.avro import AvroDeserializer  # noqa: PLC0415 - needs fastavro

    return AvroDeserializer(client, conf=_RULES)


def json_deserialiser(client: RegistryClient) -> Any:
    """Return Confluent's deserialiser of JSON, which validates."""
    from confluent_kafka.schema_registry.json_schema import JSONDeserializer  # noqa: PLC0415 - needs jsonschema

    return JSONDeserializer(None, schema_registry_client=client, conf=_RULES)


def protobuf_deserialiser(kind: Any, client: RegistryClient) -> Any:
    """Return Confluent's deserialiser of a class that protoc has generated."""
    from confluent_kafka.schema_registry.protobuf import ProtobufDeserializer  # noqa: PLC0415 - needs protobuf

    return ProtobufDeserializer(kind, _RULES, client)


def _read(deserialise: Any) -> ReadValue:
    parse = decoder_by(deserialise, None).parse

    def read(record: Record, value: bytes) -> object:
        # It sets a variable of its context, and a task with such a leftover is not reused.
        return Context().run(parse, record, value)

    return read


def _message_of(spec: HandlerSpec, decoder: Decoder, config: SchemaConfig) -> Any:
    """Return the class of messages: the handler's annotation, or the one that the key names."""
    annotated = decoder.annotation if is_protobuf(decoder.annotation) else None
    named = None if config.message is None else message_class(config.message)
    if named is None and annotated is None:
        _refuse(
            ("format",),
            f"is protobuf, but the handler {spec.name} takes {name_of(decoder.annotation)}:"
            " annotate its parameter with the class that protoc generated, or name the class in"
            " schema.message",
        )
    if named is not None and annotated is not None and named is not annotated:
        _refuse(
            ("message",),
            f"names {name_of(named)}, but the handler {spec.name} takes {name_of(annotated)}:"
            " remove message, or correct the annotation",
        )
    if annotated is None and decoder.annotation not in (Any, object):
        _refuse(
            ("message",),
            f"names {name_of(named)}, but the handler {spec.name} takes"
            f" {name_of(decoder.annotation)}: annotate its parameter with the message",
        )
    return annotated or named


def message_class(text: str) -> Any:
    """Return the class that ``schema.message`` names; raises InvalidError."""
    module, _, names = text.partition(":")
    try:
        found: Any = import_module(module)
        for name in names.split("."):
            found = getattr(found, name)
    except (ImportError, AttributeError) as error:
        _refuse(("message",), f"cannot be imported ({error}): write MODULE:CLASS")
    if not is_protobuf(found):
        _refuse(("message",), f"names {found!r}, which is not a class that protoc generated")
    return found


def _refuse_messages(spec: HandlerSpec, decoder: Decoder) -> None:
    if is_protobuf(decoder.annotation):
        _refuse(
            ("format",),
            f"must be protobuf: the handler {spec.name} takes {name_of(decoder.annotation)}",
        )


def _refuse(path: tuple[str, ...], message: str) -> NoReturn:
    raise InvalidError(Problem((SECTION.name, *path), message))
