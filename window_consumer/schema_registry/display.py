"""Values as JSON, for people who look at a record: in ``dlq show`` and on the dead-letter page."""

from __future__ import annotations

import json
from contextvars import Context
from typing import Any, Final

from confluent_kafka.serialization import MessageField, SerializationContext

from window_consumer.config.problems import InvalidError
from window_consumer.model.errors import RunError, UsageError, WindowConsumerError
from window_consumer.model.protocols import Headers
from window_consumer.plan.feature import DecodedValue
from window_consumer.plan.loading import search_current_directory
from window_consumer.schema_registry.client import RegistryClient
from window_consumer.schema_registry.config import SchemaConfig
from window_consumer.schema_registry.reading import (
    avro_deserialiser,
    json_deserialiser,
    message_class,
    protobuf_deserialiser,
)

_MOST_OF_A_REASON: Final = 300
"""Characters: some messages of the libraries quote the whole value."""


def decoded(section: SchemaConfig, topic: str, headers: Headers, value: bytes) -> DecodedValue:
    """Return a value of a topic as JSON; asks the registry.

    Decimals, times and UUIDs become texts, bytes hexadecimal digits after 0x. Raises UsageError for
    keys that cannot be used, and RunError if the registry does not answer or the value does not fit
    its schema.
    """
    form = section.format or "avro"
    deserialise = _deserialiser(section)
    pairs: list[tuple[str, str | bytes | None]] = [*headers]
    context = SerializationContext(topic, MessageField.VALUE, pairs)
    try:
        # It sets a variable of its context.
        found = Context().run(deserialise, value, context)
        return DecodedValue(json.dumps(_plain(found), default=_as_text).encode(), form)
    except WindowConsumerError:
        raise
    except Exception as error:
        reason = str(error) or type(error).__name__
        raise RunError(f"no {form}: {reason[:_MOST_OF_A_REASON]}") from error


def _deserialiser(section: SchemaConfig) -> Any:
    try:
        client = RegistryClient(section)
    except (OSError, ValueError) as error:
        raise UsageError(f"schema.ssl cannot be used: {error}") from error
    if section.format != "protobuf":
        return (json_deserialiser if section.format == "json" else avro_deserialiser)(client)
    if section.message is None:
        raise UsageError("name the message's class in schema.message, as in shop.orders_pb2:Order")
    search_current_directory()
    try:
        return protobuf_deserialiser(message_class(section.message), client)
    except InvalidError as error:
        raise UsageError(f"schema.message {error}") from error


def _plain(found: Any) -> Any:
    """Return a message as a dict; other objects as they are."""
    if not hasattr(found, "DESCRIPTOR"):
        return found
    from google.protobuf.json_format import MessageToDict  # noqa: PLC0415 - only with a message of it

    return MessageToDict(found, preserving_proto_field_name=True)


def _as_text(item: object) -> str:
    """Return what JSON has no form for as a text."""
    return f"0x{item.hex()}" if isinstance(item, bytes) else str(item)
