"""Orders as producers with Confluent's serialisers write them, and as handlers take them."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

import attrs
from confluent_kafka.schema_registry import SchemaRegistryClient, topic_subject_name_strategy
from confluent_kafka.schema_registry.avro import AvroSerializer
from confluent_kafka.schema_registry.json_schema import JSONSerializer
from confluent_kafka.schema_registry.protobuf import ProtobufSerializer
from confluent_kafka.serialization import MessageField, SerializationContext

from tests.schema_registry.orders_pb2 import Order as OrderMessage

AVRO: dict[str, Any] = {
    "type": "record",
    "name": "Order",
    "fields": [
        {"name": "id", "type": "long"},
        {"name": "customer", "type": "string"},
        {
            "name": "amount",
            "type": {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2},
        },
        {"name": "at", "type": {"type": "long", "logicalType": "timestamp-millis"}},
        {"name": "note", "type": ["null", "string"], "default": None},
    ],
}
JSON_SCHEMA = {
    "type": "object",
    "title": "Order",
    "properties": {"id": {"type": "integer"}, "customer": {"type": "string"}},
    "required": ["id", "customer"],
}
AT = datetime(2026, 11, 27, tzinfo=UTC)
ORDER = {"id": 7, "customer": "ada"}
AMOUNT = Decimal("12.50")
AVRO_ORDER = {**ORDER, "amount": AMOUNT, "at": AT, "note": None}
FORMATS = ("avro", "json", "protobuf")

_CONFIG = {"subject.name.strategy": topic_subject_name_strategy}


@attrs.frozen
class AvroOrder:
    """An order with types that JSON lacks."""

    id: int
    customer: str
    amount: Decimal
    at: datetime
    note: str | None = None


@attrs.frozen
class Order:
    """An order in any format."""

    id: int
    customer: str


def written(
    url: str, form: str, *, topic: str = "orders", schema: dict[str, Any] = AVRO, **fields: Any
) -> bytes:
    """Return an order as a producer writes it, which registers its schema.

    ``schema`` is the one of Avro.
    """
    client = SchemaRegistryClient({"url": url})
    context = SerializationContext(topic, MessageField.VALUE)
    try:
        data = _serialiser(client, form, schema)(_order(form, fields), context)
    finally:
        client.close()
    assert isinstance(data, bytes)
    return data


def _serialiser(client: SchemaRegistryClient, form: str, schema: dict[str, Any]) -> Any:
    match form:
        case "avro":
            return AvroSerializer(client, json.dumps(schema), conf=_CONFIG)
        case "json":
            return JSONSerializer(json.dumps(JSON_SCHEMA), client, conf=_CONFIG)
    return ProtobufSerializer(OrderMessage, client, _CONFIG)


def _order(form: str, fields: dict[str, Any]) -> Any:
    match form:
        case "avro":
            return {**AVRO_ORDER, **fields}
        case "json":
            return {**ORDER, **fields}
    return OrderMessage(**{**ORDER, **fields})


def unframed(form: str) -> bytes:
    """Return an order that no serialiser has written."""
    return json.dumps({**ORDER, "form": form}).encode()


def with_id(value: bytes, schema_id: int) -> bytes:
    """Return a value with the id of another schema."""
    return b"\x00" + schema_id.to_bytes(4) + value[5:]
