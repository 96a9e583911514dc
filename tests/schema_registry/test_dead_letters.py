"""``dlq show`` decodes values by the schemas that their worker reads them by."""

from __future__ import annotations

from typing import Any

import pytest

from tests.cli.dead_letters import config_for, fill, letter
from tests.commands import Commands
from tests.schema_registry.orders import FORMATS, unframed, with_id, written
from tests.schema_registry.registry import Registry
from window_consumer.kafka.embedded import EmbeddedBroker

SHOWN: dict[str, dict[str, Any]] = {
    "avro": {
        "id": 7,
        "customer": "ada",
        "amount": "12.50",
        "note": None,
        "at": "2026-11-27 00:00:00+00:00",
    },
    "json": {"id": 7, "customer": "ada"},
    "protobuf": {"id": "7", "customer": "ada"},  # JSON of Protobuf has 64 bits as text
}


def configured(
    commands: Commands, embedded: EmbeddedBroker, registry: Registry, form: str, **more: Any
) -> None:
    config = config_for(embedded.bootstrap, **more)
    schema = {"registry": registry.url, "format": form}
    if form == "protobuf":
        schema["message"] = "tests.schema_registry.orders_pb2:Order"
    config["workers"]["charge"]["schema"] = schema
    commands.configure(config)


def shown(commands: Commands, *options: str) -> Any:
    return commands.run("dlq", "show", "orders/0/1", "--json", *options).json


@pytest.mark.parametrize("form", FORMATS)
def test_a_value_is_shown_as_its_schema_describes_it(
    form: str, commands: Commands, embedded: EmbeddedBroker, registry: Registry
) -> None:
    configured(commands, embedded, registry, form)
    value = written(registry.url, form)
    fill(embedded, letter(1, value))
    expected = {"bytes": len(value), "form": "json", "json": SHOWN[form], "decoded_from": form}
    assert shown(commands)["value"] == expected


def test_a_mask_finds_fields_in_a_decoded_value_and_where_the_error_quotes_them(
    commands: Commands, embedded: EmbeddedBroker, registry: Registry
) -> None:
    configured(commands, embedded, registry, "avro", mask=[{"fields": ["customer"]}])
    value = written(registry.url, "avro", customer="Grace Hopper")
    fill(embedded, letter(1, value, error_message="no card of Grace Hopper"))
    view = shown(commands)
    assert view["value"]["json"]["customer"] == "***"
    assert "Hopper" not in view["error_message"]
    assert shown(commands, "--unmasked")["value"]["json"]["customer"] == "Grace Hopper"


def test_bytes_are_shown_with_the_reason_if_the_registry_does_not_answer(
    commands: Commands, embedded: EmbeddedBroker, registry: Registry
) -> None:
    configured(commands, embedded, registry, "avro")
    value = written(registry.url, "avro")
    fill(embedded, letter(1, value))
    registry.broken = 503, {"error_code": 503, "message": "busy"}
    ended = commands.run("dlq", "show", "orders/0/1")
    assert (ended.code, ended.err) == (0, "")
    assert value.hex()[:32] in ended.out
    assert f"{registry.url} answered 503" in ended.out


@pytest.mark.parametrize("what", ["unframed", "unknown"])
def test_a_value_that_does_not_fit_is_shown_as_it_is(
    what: str, commands: Commands, embedded: EmbeddedBroker, registry: Registry
) -> None:
    configured(commands, embedded, registry, "json")
    framed = written(registry.url, "json")
    value = unframed("json") if what == "unframed" else with_id(framed, 99)
    fill(embedded, letter(1, value))
    found = shown(commands)["value"]
    assert found["undecoded"]
    assert found["form"] == ("json" if what == "unframed" else "binary")


def test_a_message_that_the_file_does_not_name_is_asked_for(
    commands: Commands, embedded: EmbeddedBroker, registry: Registry
) -> None:
    config = config_for(embedded.bootstrap)
    config["workers"]["charge"]["schema"] = {"registry": registry.url, "format": "protobuf"}
    commands.configure(config)
    fill(embedded, letter(1, written(registry.url, "protobuf")))
    assert "schema.message" in shown(commands)["value"]["undecoded"]
