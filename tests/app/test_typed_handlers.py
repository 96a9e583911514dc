"""What a handler takes: the record, its value as an object, or both."""

from __future__ import annotations

import functools
import json
import re
from collections.abc import Callable
from typing import Any

import pytest
from confluent_kafka.serialization import (
    Deserializer,
    MessageField,
    SerializationContext,
    SerializationError,
)

from tests.app.typed_messages import (
    Attrs,
    Dataclass,
    Model,
    PydanticDataclass,
    Struct,
    Typed,
    fields_of,
)
from window_consumer import App, Record, Undecodable, UsageError
from window_consumer.model.record import Call
from window_consumer.testing import make_record

ORDER = json.dumps({"id": 7, "customer": "ada"})
KINDS = [Attrs, Dataclass, Struct, Model, PydanticDataclass, Typed]


def annotated(kind: Any, function: Callable[..., object], name: str = "order") -> Any:
    """Return a function of one parameter with this annotation."""

    def handle(order: Any) -> object:
        return function(order)

    handle.__annotations__ = {name: kind}
    return handle


def called(function: Callable[..., object], record: Record, **more: Any) -> object:
    app = App("shop")
    app.handler("orders", name="charge", **more)(function)
    return app.handlers["charge"].call(record)


# ---- who gets what


def test_a_function_of_the_record_is_called_as_it_is() -> None:
    def charge(order: Record) -> None: ...

    def anything(order: Any) -> None: ...

    unannotated = lambda order: order  # noqa: E731 - a lambda has no annotations
    functions: list[Any] = [charge, unannotated, anything, [].append, functools.partial(charge)]
    for function in functions:
        app = App("shop")
        app.handler("orders", name="charge")(function)
        assert app.handlers["charge"].call is function


def test_the_value_comes_alone_or_with_the_record_in_either_order() -> None:
    def alone(order: Attrs) -> object:
        return order.id

    def with_record(order: Attrs, record: Record) -> object:
        return order.id, record.offset

    def record_first(record: Record, order: Attrs) -> object:
        return order.id, record.offset

    def second_not_annotated(order: Attrs, record: Any) -> object:
        return order.id, record.offset

    del second_not_annotated.__annotations__["record"]
    nothing_annotated = lambda order, record: (order["id"], record.offset)  # noqa: E731 - see above

    class Charger:
        def __call__(self, order: Attrs, more: int = 3) -> object:
            return order.id + more

    record = make_record(ORDER, offset=5)
    assert called(alone, record) == 7
    for function in (with_record, record_first, second_not_annotated, nothing_annotated):
        assert called(function, record) == (7, 5)
    assert called(Charger(), record) == 10


@pytest.mark.parametrize("kind", KINDS)
def test_json_becomes_what_the_annotation_says(kind: Any) -> None:
    order = called(annotated(kind, lambda order: order), make_record(ORDER))
    assert fields_of(order) == (7, "ada")
    if kind is not Typed:
        assert type(order) is kind
        assert order.note is None  # type: ignore[attr-defined] # all of them have one


@pytest.mark.parametrize(
    ("kind", "value", "expected"),
    [
        (bytes, "x", b"x"),
        (str, "ä", "ä"),
        (dict[str, int], '{"a": 1}', {"a": 1}),
        (list[Attrs], f"[{ORDER}]", [Attrs(7, "ada")]),
        (list[Struct], f"[{ORDER}]", [Struct(7, "ada")]),
        (list[Model], f"[{ORDER}]", [Model(id=7, customer="ada")]),
        (Attrs | None, ORDER, Attrs(7, "ada")),
        (Struct | None, ORDER, Struct(7, "ada")),
        (Model | None, ORDER, Model(id=7, customer="ada")),
        (float, "1", 1.0),
    ],
)
def test_other_types_and_types_of_types(kind: Any, value: str, expected: object) -> None:
    assert called(annotated(kind, lambda order: order), make_record(value)) == expected


# ---- what cannot be decoded


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    ("value", "part"),
    [
        (b'{"id": 7}', "customer"),
        (b'{"id": "7", "customer": "ada"}', "id"),
        (b'{"id": 7, "customer": null}', "customer"),
        (b"[]", ""),
        (b"no JSON", ""),
        (b"\xff\xfe", ""),
        (b"", ""),
    ],
)
def test_what_does_not_fit_is_undecodable_with_the_decoders_message(
    kind: Any, value: bytes, part: str
) -> None:
    with pytest.raises(Undecodable, match=f"^no {kind.__name__}: .") as raised:
        called(annotated(kind, lambda order: order), make_record(value))
    assert part in str(raised.value)
    assert raised.value.__cause__ is not None


def test_a_long_message_of_a_decoder_is_cut() -> None:
    with pytest.raises(Undecodable) as raised:
        called(annotated(list[int], print), make_record(json.dumps(["x"] * 5_000)))
    assert len(str(raised.value)) < 3_000


@pytest.mark.parametrize("kind", [*KINDS, dict[str, int], str, bytes])
def test_a_tombstone_is_none_only_where_the_annotation_allows_it(kind: Any) -> None:
    with pytest.raises(Undecodable, match=r"tombstone.*\| None"):
        called(annotated(kind, lambda order: order), make_record(None))
    assert called(annotated(kind | None, lambda order: order), make_record(None)) is None


# ---- decoders that the application names


def test_a_function_of_bytes_decodes() -> None:
    def charge(order: int, record: Record) -> object:
        return order, record.offset

    def number(value: bytes) -> int:
        return int(value, 16)

    assert called(charge, make_record(b"ff", offset=3), value=number) == (255, 3)
    with pytest.raises(Undecodable, match="no int: invalid literal"):
        called(charge, make_record(b"x"), value=number)
    with pytest.raises(Undecodable, match="tombstone"):
        called(charge, make_record(None), value=number)
    assert called(lambda order: order, make_record(b"ff"), value=number) == 255
    assert called(lambda order: order, make_record(None), value=number) is None


class Registry(Deserializer):
    """Stands for a deserialiser of the Schema Registry client: it takes a context."""

    def __call__(self, value: bytes | None, ctx: SerializationContext | None = None) -> object:
        assert ctx is not None
        if not value:
            raise SerializationError("Unexpected magic byte")
        return ctx.topic, ctx.field, ctx.headers, value


def test_a_deserialiser_of_confluents_client_gets_its_context() -> None:
    record = make_record(b"v", topic="orders", headers=[("h", b"1")])
    found = called(lambda order: order, record, value=Registry())
    assert found == ("orders", MessageField.VALUE, [("h", b"1")], b"v")
    with pytest.raises(Undecodable, match="magic byte"):
        called(lambda order: order, make_record(b""), value=Registry())


def test_it_is_told_the_first_topic_of_a_copy_but_believes_no_strangers_header() -> None:
    headers = [("wc-orig-topic", b"orders")]
    message = make_record(b"v", topic="g.orders.retry.10s", headers=headers)._message
    app = App("shop")
    app.handler("orders", name="charge", value=Registry())(lambda order: order[0])
    call = app.handlers["charge"].call
    assert call(Record.of(message, Call(before=lambda _message: 1))) == "orders"
    assert call(Record.of(message, Call())) == "g.orders.retry.10s"


# ---- at the start


def takes_nothing() -> None: ...


def takes_three(order: Attrs, record: Record, more: int) -> None: ...


def takes_two_records(one: Record, other: Record) -> None: ...


def takes_two_values(order: Attrs, other: Dataclass) -> None: ...


def takes_by_keyword(order: Attrs, *, record: Record) -> None: ...


def takes_what_is_nowhere(order: Nowhere) -> None: ...  # type: ignore[name-defined] # noqa: F821 - that is the point


def takes_a_record(record: Record) -> None: ...


def takes_what_json_cannot_say(order: re.Pattern[str]) -> None: ...


@pytest.mark.parametrize(
    ("function", "more", "why"),
    [
        (takes_nothing, {}, r"takes .*; this one takes \(nothing\)"),
        (takes_three, {}, r"this one takes \(order, record, more\)"),
        (takes_two_records, {}, r"this one takes \(one, other\)"),
        (takes_two_values, {}, "parameter 'other' is neither the value nor annotated with Record"),
        (takes_by_keyword, {}, "'record' is keyword-only"),
        (takes_what_is_nowhere, {}, "its annotations cannot be read .*Nowhere"),
        (takes_a_record, {"value": int}, "value= is given, but no parameter takes the value"),
        (takes_what_json_cannot_say, {}, "parameter 'order': nothing can make .*Pattern.* of JSON"),
        (
            annotated(Attrs, print),
            {"value": "avro"},
            "parameter 'order': value='avro' is no decoder",
        ),
    ],
)
def test_functions_that_cannot_be_called_are_told_at_once(
    function: Any, more: Any, why: str
) -> None:
    with pytest.raises(UsageError, match=f"^@app.handler .*{why}"):
        App("shop").handler("orders", **more)(function)
