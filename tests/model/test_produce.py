from __future__ import annotations

import itertools
import pickle
from collections.abc import AsyncIterator, Mapping
from typing import Any

import pytest

from tests.golden_texts import Golden
from window_consumer import Produce
from window_consumer.model.produce import results_of


def test_text_is_utf8_and_bytes_are_taken_as_they_are() -> None:
    record = Produce("invoices", "kä", "vä", headers={"a": "ä", "none": None})
    assert record == Produce(
        "invoices", "kä".encode(), "vä".encode(), headers=[("a", "ä".encode()), ("none", None)]
    )
    assert Produce("invoices", bytearray(b"k"), memoryview(b"v")) == Produce("invoices", b"k", b"v")  # type: ignore[arg-type] # it is taken, and nobody needs to know


def test_a_record_needs_nothing_but_a_topic() -> None:
    record = Produce("invoices")
    assert (record.key, record.value, record.headers) == (None, None, ())
    assert (record.partition, record.timestamp) == (None, None)
    assert record  # although its payload is empty
    assert len(record) == 0


def test_repeated_headers_stay_in_their_order() -> None:
    pairs = [("a", b"1"), ("b", None), ("a", b"2")]
    assert Produce("invoices", headers=pairs).headers == tuple(pairs)


def test_it_crosses_the_border_of_a_process_as_it_is() -> None:
    record = Produce("invoices", "k", "v", headers={"a": b"1"}, partition=3, timestamp=7)
    assert pickle.loads(pickle.dumps(record)) == record  # noqa: S301 - our own


@pytest.mark.parametrize(
    ("parts", "said"),
    [
        ({"topic": 7}, "topic must be a text, not int"),
        ({"topic": ""}, "topic is empty"),
        ({"topic": "the invoices"}, "'the invoices' is not a valid topic name"),
        ({"topic": ".."}, "is not a valid topic name"),
        ({"topic": "x" * 250}, "is not a valid topic name: use 1 to 249"),
        ({"partition": 2**31}, "partition must be at most 2147483647"),
        ({"timestamp": 2**63}, "timestamp must be at most"),
        ({"value": {"id": 1}}, r"value must be bytes, text or None, not dict; encode it first"),
        ({"key": 7}, "key must be bytes, text or None, not int"),
        ({"headers": ["ab"]}, "headers must be a mapping, or pairs"),
        ({"headers": [7]}, "headers must be a mapping, or pairs"),
        ({"headers": {7: b""}}, "a header's name must be a text, not int"),
        ({"headers": {"a": 7}}, "header 'a' must be bytes, text or None, not int"),
        ({"partition": "1"}, "partition must be an integer or None, not str"),
        ({"partition": True}, "partition must be an integer or None, not bool"),
        ({"partition": -1}, "partition must not be negative: -1"),
        ({"timestamp": 1.5}, "timestamp must be an integer or None, not float"),
    ],
)
def test_what_is_no_record_is_refused_where_it_is_made(parts: Mapping[str, Any], said: str) -> None:
    with pytest.raises((TypeError, ValueError), match=said):
        Produce(**{"topic": "invoices", **parts})


def test_a_handler_returns_one_record_or_several() -> None:
    one, two = Produce("invoices", "1"), Produce("invoices", "2")
    assert results_of(one) == (one,)
    assert results_of([one, two]) == (one, two)
    assert results_of((two, one)) == (two, one)


async def never() -> AsyncIterator[Produce]:
    for _ in ():
        yield Produce("invoices")


@pytest.mark.parametrize("returned", [None, True, "text", 7, [], (), [1, 2], {"a": 1}, object()])
def test_what_else_a_handler_returns_is_its_own_business(returned: object) -> None:
    assert results_of(returned) == ()


def test_something_else_among_the_records_is_an_error(golden: Golden) -> None:
    with golden.raises(TypeError):
        results_of([Produce("invoices"), None])


@pytest.mark.parametrize(
    ("returned", "where"),
    [
        ({Produce("invoices")}, "a set"),
        (frozenset([Produce("invoices")]), "a frozenset"),
        ({"x": Produce("invoices")}, "a dict"),
        ([[Produce("invoices")]], "a list within a list"),
        (((Produce("invoices"),), ()), "a tuple within a tuple"),
    ],
)
def test_records_in_anything_but_a_list_are_an_error(returned: object, where: str) -> None:
    with pytest.raises(TypeError, match=f" {where}: "):
        results_of(returned)


@pytest.mark.parametrize(
    "lazy",
    [
        map(Produce, ["invoices"]),
        filter(None, [Produce("invoices")]),
        zip([Produce("invoices")], strict=True),
        itertools.chain([Produce("invoices")]),
        (each async for each in never()),
    ],
)
def test_what_is_not_run_through_yet_is_an_error(lazy: object, golden: Golden) -> None:
    with golden.raises(TypeError):
        results_of(lazy)


def test_what_has_not_run_is_an_error(golden: Golden) -> None:
    async def later() -> Produce:
        return Produce("invoices")

    with golden.raises(TypeError):
        results_of(Produce("invoices") for _ in range(3))
    with golden.raises(TypeError):
        results_of(later())
