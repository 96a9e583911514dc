"""What a handler takes: the record, its value as an object, or both."""

from __future__ import annotations

import dataclasses
import functools
import json
import re
from collections.abc import Callable, Iterator
from datetime import time
from decimal import Decimal
from typing import Any, Generic, TypedDict, TypeVar
from uuid import UUID

import attrs
import msgspec
import pydantic
import pytest
from confluent_kafka.serialization import (
    Deserializer,
    MessageField,
    SerializationContext,
    SerializationError,
)
from google.protobuf import struct_pb2

from tests.app.typed_messages import (
    Attrs,
    Dataclass,
    Model,
    PydanticDataclass,
    Struct,
    Typed,
    fields_of,
)
from window_consumer import App, Fatal, Record, RetryLater, Skip, Undecodable, UsageError
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


T = TypeVar("T")


@attrs.frozen
class Parts:
    amount: Decimal | None = None
    uid: UUID | None = None
    data: bytes | None = None
    at: time | None = None
    tags: list[str] = attrs.field(factory=list)
    kinds: frozenset[str] = frozenset()
    pair: tuple[int, ...] = ()
    by_number: dict[int, str] = attrs.field(factory=dict)
    share: float | None = None
    then: Parts | None = None
    below: list[Parts] = attrs.field(factory=list)


@dataclasses.dataclass
class Page(Generic[T]):
    entries: list[T]
    last: T | None = None


class DelayRequest(TypedDict, total=False):
    tags: list[str]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ('{"amount": "1.10"}', Parts(amount=Decimal("1.10"))),
        ('{"amount": 1.1}', Parts(amount=Decimal("1.1"))),
        ('{"amount": 12345678901234567890}', Parts(amount=Decimal(12345678901234567890))),
        (f'{{"uid": "{UUID(int=7)}"}}', Parts(uid=UUID(int=7))),
        ('{"data": "aGk="}', Parts(data=b"hi")),
        ('{"at": "03:04"}', Parts(at=time(3, 4))),
        ('{"tags": ["a"], "kinds": ["b"]}', Parts(tags=["a"], kinds=frozenset("b"))),
        ('{"pair": [1, 2], "share": 1}', Parts(pair=(1, 2), share=1.0)),
        ('{"by_number": {"7": "x"}}', Parts(by_number={7: "x"})),
        ('{"then": {"then": {}}, "below": [{}]}', Parts(then=Parts(then=Parts()), below=[Parts()])),
    ],
)
def test_fields_of_many_types_are_read(text: str, expected: Parts) -> None:
    assert called(annotated(Parts, lambda order: order), make_record(text)) == expected


def test_generic_classes_are_read_as_their_arguments_say() -> None:
    page = called(
        annotated(Page[Attrs], lambda page: page), make_record(f'{{"entries": [{ORDER}]}}')
    )
    assert page == Page([Attrs(7, "ada")])


# ---- what cannot be decoded


@pytest.mark.parametrize(
    ("kind", "text", "why"),
    [
        (Parts, "[]", "array, .*object"),
        (Parts, "null", "null, .*object"),
        (Parts, '"Parts"', "text, .*object"),
        (DelayRequest, "[]", "array, .*object"),
        (Parts, '{"tags": "ab"}', r"expected list @ \$.tags"),
        (Parts, '{"kinds": "ab"}', r"expected frozenset @ \$.kinds"),
        (Parts, '{"pair": "12"}', r"expected tuple @ \$.pair"),
        (Parts, '{"tags": {"ab": 1}}', r"expected list @ \$.tags"),
        (Parts, '{"below": [{}, {"tags": "ab"}]}', r"expected list @ \$.below\[1\].tags"),
        (Parts, '{"amount": true}', r"\$.amount"),
        (Parts, '{"amount": "NaN"}', r"\$.amount"),
        (Parts, '{"amount": "1,10"}', r"\$.amount"),
        (Parts, '{"uid": 7}', r"\$.uid"),
        (Parts, '{"data": "h!"}', r"\$.data"),
        (Parts, '{"by_number": {"x": "x"}}', r"\$.by_number"),
        (list[str], '"ab"', "text, .*array"),
        (Attrs | Parts, '"ab"', r"valid Attrs \| Parts: "),
    ],
)
def test_nothing_is_made_into_what_it_is_not(kind: Any, text: str, why: str) -> None:
    with pytest.raises(Undecodable, match=why):
        called(annotated(kind, print), make_record(text))


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
    with pytest.raises(Undecodable, match=f"valid {kind.__name__}: .") as raised:
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
    with pytest.raises(Undecodable, match="int: invalid literal"):
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


def test_it_learns_the_first_topic_of_a_copy_but_believes_no_strangers_header() -> None:
    headers = [("wc-orig-topic", b"orders")]
    message = make_record(b"v", topic="g.orders.retry.10s", headers=headers)._message
    app = App("shop")
    app.handler("orders", name="charge", value=Registry())(lambda order: order[0])
    call = app.handlers["charge"].call
    assert call(Record.of(message, Call(before=lambda _message: 1))) == "orders"
    assert call(Record.of(message, Call())) == "g.orders.retry.10s"


def raised_by(
    module: str, name: str, base: type[Exception] = Exception, status: int = 0, code: int = -1
) -> Any:
    """Return an exception as a library raises it that the tests do without."""
    fields = {"__module__": module, "http_status_code": status, "error_code": code}
    return type(name, (base,), fields)("busy")


def raising(error: BaseException) -> Callable[[bytes], object]:
    def decode(_value: bytes) -> object:
        raise error

    return decode


REGISTRY = ("confluent_kafka.schema_registry.error", "SchemaRegistryError", Exception)


@pytest.mark.parametrize(
    "error",
    [
        ConnectionRefusedError("busy"),
        TimeoutError("busy"),
        raised_by("httpx", "ConnectError", type(raised_by("httpx", "TransportError"))),
        raised_by("requests.exceptions", "ConnectionError", OSError),
        raised_by(*REGISTRY, status=503),
        raised_by(*REGISTRY, status=401),
        raised_by(*REGISTRY, status=404),
        raised_by(*REGISTRY, status=404, code=404),
    ],
)
def test_a_decoder_that_could_not_ask_has_failed_and_says_nothing_of_the_value(
    error: Exception,
) -> None:
    wrapped = ValueError("around it")
    wrapped.__cause__ = error
    for each in (error, wrapped):
        with pytest.raises(type(each), match=str(each)) as raised:
            called(lambda order: order, make_record("x"), value=raising(each))
        assert raised.value is each


@pytest.mark.parametrize(
    "error",
    [
        raised_by(*REGISTRY, status=404, code=40403),
        raised_by(*REGISTRY, status=422, code=42201),
        OSError("no bzip2 file"),
    ],
)
def test_what_a_decoder_says_of_the_value_is_undecodable(error: Exception) -> None:
    with pytest.raises(Undecodable, match=str(error)):
        called(lambda order: order, make_record("x"), value=raising(error))


@pytest.mark.parametrize("meant", [Skip(), RetryLater(3), Fatal("never"), Undecodable("mine")])
def test_what_a_decoder_raises_on_purpose_means_what_it_always_means(meant: Exception) -> None:
    with pytest.raises(type(meant)) as raised:
        called(lambda order: order, make_record("x"), value=raising(meant))
    assert raised.value is meant


def test_a_class_of_protoc_reads_its_own_bytes() -> None:
    order = struct_pb2.Struct(fields={"id": struct_pb2.Value(number_value=7)})
    found = called(
        annotated(struct_pb2.Struct, lambda order: order), make_record(order.SerializeToString())
    )
    assert found == order
    with pytest.raises(Undecodable, match="valid Struct"):
        called(annotated(struct_pb2.Struct, print), make_record(ORDER))


# ---- at the start


def takes_nothing() -> None: ...


def takes_three(order: Attrs, record: Record, more: int) -> None: ...


def takes_two_records(one: Record, other: Record) -> None: ...


def takes_two_values(order: Attrs, other: Dataclass) -> None: ...


def takes_by_keyword(order: Attrs, *, record: Record) -> None: ...


def takes_what_is_nowhere(order: Nowhere) -> None: ...  # type: ignore[name-defined] # noqa: F821 - that is the point


def takes_a_record(record: Record) -> None: ...


def takes_what_json_cannot_say(order: re.Pattern[str]) -> None: ...


class Other:
    """No library makes it of JSON."""


@attrs.frozen
class MaybeOther:
    other: Other | None = None


@attrs.frozen
class EitherOther:
    other: Attrs | MaybeOther | None = None


class WishOther(TypedDict, total=False):
    other: list[Other | None]


class StructOther(msgspec.Struct):
    other: Other | None = None


class ModelNowhere(pydantic.BaseModel):
    other: Nowhere  # type: ignore[name-defined] # noqa: F821 - that is the point


class Constructed:
    """A class that is called with what it is made of."""

    def __init__(self, order: MaybeOther) -> None: ...


@pytest.mark.parametrize(
    ("kind", "what"),
    [
        (MaybeOther, "Other"),
        (EitherOther, "Other"),
        (list[MaybeOther], "Other"),
        (Page[Other], "Other"),
        (WishOther, "Other"),
        (set[Other] | None, "Other"),
        (dict[int, Other | None], "Other"),
        (StructOther, "msgspec .*Other"),
        (list[StructOther], "msgspec .*Other"),
        (Struct | Other, "custom type"),
        (list[Model | Other], "schema for .*Other"),
        (ModelNowhere, "'Nowhere'"),
    ],
)
def test_a_type_that_can_never_be_decoded_is_reported_before_the_first_record(
    kind: Any, what: str
) -> None:
    with pytest.raises(UsageError, match=rf"parameter 'order': .*\(.*{what}"):
        App("shop").handler("orders")(annotated(kind, print))


async def awaits(value: bytes) -> object: ...


def generates(value: bytes) -> Iterator[object]:
    yield value


def wants_two(value: bytes, more: int) -> object: ...


@pytest.mark.parametrize(
    ("decoder", "why"), [(awaits, "coroutine"), (generates, "coroutine"), (wants_two, "'more'")]
)
def test_a_decoder_that_can_decode_nothing_is_reported_at_once(decoder: Any, why: str) -> None:
    with pytest.raises(UsageError, match=f"^@app.handler .*decoder: .*{why}"):
        App("shop").handler("orders", value=decoder)(lambda order: order)


@pytest.mark.parametrize("decorate", [App("shop").handler, App("shop").batch_handler])
def test_what_has_no_name_of_its_own_is_asked_for_one(decorate: Any) -> None:
    with pytest.raises(UsageError, match="name="):
        decorate("orders")(functools.partial(print, 1))


@pytest.mark.parametrize(
    ("function", "more", "why"),
    [
        (takes_nothing, {}, r"takes .*; this one takes \(nothing\)"),
        (takes_three, {}, r"this one takes \(order, record, more\)"),
        (takes_two_records, {}, r"this one takes \(one, other\)"),
        (takes_two_values, {}, "parameter 'other' .*Record"),
        (takes_by_keyword, {}, "'record' .*keyword"),
        (takes_what_is_nowhere, {}, "Nowhere"),
        (takes_a_record, {"value": int}, "value= .*parameter"),
        (annotated(list[Record], print), {}, "'order' .*list.*Record.*@app.batch_handler"),
        (Constructed, {}, "parameter 'order': .*JSON.*MaybeOther"),
        (takes_what_json_cannot_say, {}, "parameter 'order': .*JSON.*Pattern"),
        (annotated(Attrs, print), {"value": "avro"}, "parameter 'order': value='avro'"),
    ],
)
def test_functions_that_cannot_be_called_are_reported_at_once(
    function: Any, more: Any, why: str
) -> None:
    with pytest.raises(UsageError, match=f"^@app.handler .*{why}"):
        App("shop").handler("orders", **more)(function)
