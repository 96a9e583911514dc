"""What handlers get of values that have schemas, and what becomes of values that have none."""

from __future__ import annotations

import types
from typing import Any

import attrs
import msgspec
import pydantic
import pytest

from tests.schema_registry.orders import (
    AMOUNT,
    AT,
    AVRO_ORDER,
    FORMATS,
    ORDER,
    AvroOrder,
    unframed,
    with_id,
    written,
)
from tests.schema_registry.orders_pb2 import Order as OrderMessage
from tests.schema_registry.registry import Registry
from tests.schema_registry.worker import CLASSES, app_with, reading
from window_consumer.testing import DEAD_LETTERED, DONE


class Model(pydantic.BaseModel):
    model_config = pydantic.ConfigDict(strict=True)
    id: int
    customer: str


class Struct(msgspec.Struct):
    id: int
    customer: str


@pytest.mark.parametrize("form", FORMATS)
def test_a_handler_gets_its_own_class(form: str, registry: Registry) -> None:
    got: list[Any] = []

    def charge(order: Any) -> None:
        got.append(order)

    with reading(app_with(charge, CLASSES[form]), registry, form) as app:
        sent = app.send("orders", written(registry.url, form))
        assert sent.outcome is DONE
    assert isinstance(got[0], CLASSES[form])
    assert (got[0].id, got[0].customer) == (7, "ada")


def test_avro_keeps_decimals_and_times(registry: Registry) -> None:
    got: list[Any] = []

    def charge(order: Any) -> None:
        got.append(order)

    for kind in (AvroOrder, dict[str, Any]):
        with reading(app_with(charge, kind), registry, "avro") as app:
            app.send("orders", written(registry.url, "avro"))
    assert got == [AvroOrder(7, "ada", AMOUNT, AT), AVRO_ORDER]


@pytest.mark.parametrize("kind", [Model, Struct])
@pytest.mark.parametrize("form", ["avro", "json"])
def test_pydantic_and_msgspec_read_what_the_schema_describes(
    form: str, kind: Any, registry: Registry
) -> None:
    got: list[Any] = []

    def charge(order: Any) -> None:
        got.append((type(order), order.id, order.customer))

    with reading(app_with(charge, kind), registry, form) as app:
        app.send("orders", written(registry.url, form))
    assert got == [(kind, 7, "ada")]


def test_json_is_a_dict_and_has_to_fit_its_schema(registry: Registry) -> None:
    got: list[Any] = []

    def charge(order: Any) -> None:
        got.append(order)

    with reading(app_with(charge, dict[str, Any]), registry, "json") as app:
        good = written(registry.url, "json")
        app.send("orders", good)
        wrong = app.send("orders", good.replace(b'"ada"', b"1"))
        assert wrong.outcome is DEAD_LETTERED
    assert got == [ORDER]


def test_the_class_of_messages_may_stand_in_the_configuration(registry: Registry) -> None:
    got: list[Any] = []

    def charge(order: Any, _record: Any) -> None:
        got.append(order)

    schema = {"message": "tests.schema_registry.orders_pb2:Order"}
    with reading(app_with(charge, Any), registry, "protobuf", schema=schema) as app:
        app.send("orders", written(registry.url, "protobuf"))
    assert got == [OrderMessage(**ORDER)]


@pytest.mark.parametrize("form", FORMATS)
def test_a_value_without_a_schema_is_a_dead_letter_with_its_bytes(
    form: str, registry: Registry
) -> None:
    got: list[Any] = []

    def charge(order: Any) -> None:
        got.append(order.id)

    with reading(app_with(charge, CLASSES[form]), registry, form) as app:
        good = written(registry.url, form, id=8)
        bad = [unframed(form), with_id(good, 99), b"", b"\x00", good[:-1] + b"\xff" * 9]
        sent = app.send_many("orders", [*bad, good])
        assert [each.outcome for each in sent] == [*[DEAD_LETTERED] * len(bad), DONE]
        assert {each.reason for each in app.dead_letters} == {"DECODE"}
        assert {each.value for each in app.dead_letters} == {*bad}
        assert [each.attempts for each in sent[:-1]] == [1] * len(bad)
    assert got == [8]


@pytest.mark.parametrize("form", FORMATS)
def test_bad_values_of_a_batch_leave_and_the_others_are_handled(
    form: str, registry: Registry
) -> None:
    got: list[list[int]] = []

    def charge(orders: Any) -> None:
        got.append([each.id for each in orders])

    batch = {"max_records": 3, "max_wait": "1s"}
    app = app_with(charge, types.GenericAlias(list, CLASSES[form]), batches=True)
    with reading(app, registry, form, batch=batch) as worker:
        values = [
            written(registry.url, form, id=1),
            unframed(form),
            written(registry.url, form, id=3),
        ]
        sent = worker.send_many("orders", values, key="k")
        assert [each.outcome for each in sent] == [DONE, DEAD_LETTERED, DONE]
    assert got == [[1, 3]]


@pytest.mark.parametrize("form", FORMATS)
def test_a_tombstone_is_none_where_the_handler_takes_it(form: str, registry: Registry) -> None:
    got: list[Any] = []

    def charge(order: Any) -> None:
        got.append(order)

    with reading(app_with(charge, CLASSES[form] | None), registry, form) as app:
        assert app.send("orders", None).outcome is DONE
    with reading(app_with(charge, CLASSES[form]), registry, form) as app:
        assert app.send("orders", None).outcome is DEAD_LETTERED
    assert got == [None]


def test_each_schema_is_fetched_once_and_a_missing_one_is_not_asked_for_again_at_once(
    registry: Registry,
) -> None:
    def charge(order: Any) -> None: ...

    with reading(app_with(charge, AvroOrder), registry, "avro") as app:
        good = written(registry.url, "avro")
        app.send_many("orders", [good] * 20)
        app.send_many("orders", [with_id(good, 99)] * 20)
        assert len(app.dead_letters) == 20
    assert registry.asked == ["/schemas/ids/1", "/schemas/ids/99"]


def test_the_id_of_a_schema_may_stand_in_a_header(registry: Registry) -> None:
    got: list[Any] = []

    def charge(order: Any) -> None:
        got.append(order)

    with reading(app_with(charge, dict[str, Any]), registry, "json") as app:
        value = written(registry.url, "json")
        app.send("orders", value[5:], headers={"__value_schema_id": value[:5]})
    assert got == [ORDER]


def test_a_class_that_lacks_fields_of_the_schema_is_made_without_them(registry: Registry) -> None:
    @attrs.frozen
    class Customer:
        customer: str

    got: list[Any] = []

    def charge(order: Any) -> None:
        got.append(order)

    with reading(app_with(charge, Customer), registry, "avro") as app:
        app.send("orders", written(registry.url, "avro"))
    assert got == [Customer("ada")]
