"""Which sections are refused, and what ``check`` says of registries."""

from __future__ import annotations

import re
from typing import Any

import pytest

from tests.commands import Commands, kafka_of
from tests.schema_registry.orders import AvroOrder, written
from tests.schema_registry.orders_pb2 import Order as OrderMessage
from tests.schema_registry.registry import Registry
from tests.schema_registry.worker import app_with
from window_consumer import App, ConfigError
from window_consumer.kafka.embedded import EmbeddedBroker
from window_consumer.testing import TestApp

URL = "http://registry.internal:8081"


def takes_values(order: Any) -> None: ...


def refused(app: App, schema: dict[str, Any]) -> set[str]:
    """Return the keys, below the worker's section, that are refused."""
    worker = {"topics": ["orders"], "group": "shop", "schema": schema}
    with pytest.raises(ConfigError) as raised:
        TestApp(app, config={"workers": {"charge": worker}})
    return set(re.findall(r": workers[.]charge[.]schema[.]?([\w.]*): ", str(raised.value)))


@pytest.mark.parametrize(
    ("schema", "keys"),
    [
        ({}, {"registry", "format"}),
        ({"registry": URL}, {"format"}),
        ({"format": "avro"}, {"registry"}),
        ({"registry": URL, "format": "xml"}, {"format"}),
        ({"registry": "registry:8081", "format": "avro"}, {"registry"}),
        ({"registry": "http://me:secret@registry", "format": "avro"}, {"registry"}),
        ({"registry": f"{URL},other", "format": "avro"}, {"registry"}),
        ({"registry": URL, "format": "avro", "message": "shop:Order"}, {"message"}),
        ({"registry": URL, "format": "avro", "user": "me"}, {"password"}),
        ({"registry": URL, "format": "avro", "password": "x"}, {"user"}),
        ({"registry": URL, "format": "avro", "timeout": "0s"}, {"timeout"}),
        ({"registry": URL, "format": "avro", "ssl": {"ca": "/nowhere.pem"}}, {"ssl"}),
        ({"registry": "https://r", "format": "avro", "ssl": {"ca": "/nowhere.pem"}}, {"ssl"}),
        ({"registry": "https://r", "format": "avro", "ssl": {"key": "k"}}, {"ssl.certificate"}),
    ],
)
def test_nonsense_is_refused_by_its_key(schema: dict[str, Any], keys: set[str]) -> None:
    assert refused(app_with(takes_values, AvroOrder), schema) == keys


@pytest.mark.parametrize(
    ("annotation", "schema", "keys"),
    [
        (AvroOrder, {"format": "protobuf"}, {"format"}),
        (OrderMessage, {"format": "avro"}, {"format"}),
        (OrderMessage, {"format": "json"}, {"format"}),
        (
            OrderMessage,
            {"format": "protobuf", "message": "tests.schema_registry.orders_pb2:Refund"},
            {"message"},
        ),
        (
            AvroOrder,
            {"format": "protobuf", "message": "tests.schema_registry.orders_pb2:Order"},
            {"message"},
        ),
        (OrderMessage, {"format": "protobuf", "message": "nowhere:Order"}, {"message"}),
        (OrderMessage, {"format": "protobuf", "message": "json:dumps"}, {"message"}),
        (Any, {"format": "avro"}, {""}),
    ],
)
def test_a_section_has_to_fit_the_handler(
    annotation: Any, schema: dict[str, Any], keys: set[str]
) -> None:
    assert refused(app_with(takes_values, annotation), {"registry": URL, **schema}) == keys


def test_a_handler_has_one_decoder() -> None:
    app = App("shop")
    app.handler("orders", name="charge", value=int)(takes_values)
    assert refused(app, {"registry": URL, "format": "avro"}) == {""}


SHOP = """\
from tests.schema_registry.orders import AvroOrder
from window_consumer import App

app = App("shop")


@app.handler("orders", group="shop")
def charge(order: AvroOrder) -> None: ...
"""


@pytest.fixture
def shop(commands: Commands, embedded: EmbeddedBroker, registry: Registry) -> Commands:
    embedded.create_topic("orders", 1)
    commands.application(SHOP)
    registry.login = ("me", "registry-password")
    schema = {"registry": registry.url, "format": "avro", "user": "me"}
    worker = {"schema": {**schema, "password": "${PASSWORD}"}}
    commands.configure({"kafka": kafka_of(embedded), "workers": {"charge": worker}})
    return commands


def test_check_asks_the_registry_for_the_subject_of_each_topic(
    shop: Commands, registry: Registry
) -> None:
    environment = {"PASSWORD": "registry-password"}
    (found,) = shop.run("check", "--connect", "--json", "shop:app", env=environment).json["schemas"]
    assert (found["subject"], found["version"]) == ("orders-value", None)
    registry.login = None
    written(registry.url, "avro")
    (found,) = shop.run("check", "--connect", "--json", "shop:app", env=environment).json["schemas"]
    assert found == {
        "worker": "charge",
        "registry": registry.url,
        "subject": "orders-value",
        "version": 1,
        "schema_id": 1,
    }


def test_check_says_that_a_registry_refuses_the_login_and_shows_no_password(shop: Commands) -> None:
    ended = shop.run("check", "--connect", "shop:app", env={"PASSWORD": "another-password"})
    assert ended.code == 1
    assert "401" in ended.said
    assert "another-password" not in ended.said


def test_check_refuses_a_topic_whose_schemas_have_another_format(
    shop: Commands, registry: Registry
) -> None:
    registry.login = None
    written(registry.url, "json")
    ended = shop.run("check", "--connect", "shop:app", env={"PASSWORD": "x"})
    assert ended.code == 2
    assert "schema.format" in ended.said
