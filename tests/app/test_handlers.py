from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Iterator
from typing import Any

import pytest

from tests.engine.support import Note
from tests.golden_texts import Golden
from window_consumer import App, Record, UsageError
from window_consumer.model.record import Call
from window_consumer.plan.lifespans import as_context
from window_consumer.runtime.calls.layer import CallForm


def a_record(**fields: Any) -> Record:
    return Record.of(Note(7, b"k", **fields), Call(attempt=2, state="pool"))


def test_a_decorated_function_stays_an_ordinary_function() -> None:
    app = App("shop")

    @app.handler("orders")
    def charge(order: Record) -> str:
        return f"charged {order.offset}"

    assert charge(a_record()) == "charged 7"
    assert charge.__name__ == "charge"


def test_decorator_arguments_are_defaults_with_the_names_of_the_keys() -> None:
    app = App("shop")

    @app.handler("orders", "refunds", ordering="key", concurrency=8, fatal=[KeyError], group="g")
    def charge(_order: Record) -> None: ...

    assert app.handlers["charge"].defaults == {
        "topics": ["orders", "refunds"],
        "ordering": "key",
        "concurrency": 8,
        "retry": {"fatal": [KeyError]},
        "group": "g",
    }


def test_two_handlers_of_one_name_are_refused_with_both_places(golden: Golden) -> None:
    app = App("shop")

    @app.handler("orders")
    def charge(_order: Record) -> None: ...

    with golden.raises(UsageError):
        app.handler("refunds", name="charge")(lambda _record: None)


def a_generator_handler(_record: Record) -> Iterator[None]:
    yield


async def an_async_generator_handler(_record: Record) -> AsyncIterator[None]:
    yield


@pytest.mark.parametrize("function", [a_generator_handler, an_async_generator_handler])
def test_functions_whose_call_would_run_nothing_are_refused(function: Any) -> None:
    with pytest.raises(UsageError, match="generator function"):
        App("shop").handler("orders")(function)
    with pytest.raises(UsageError, match="generator function"):
        App("shop").middleware(function)


def test_middleware_wraps_in_the_order_of_its_registration() -> None:
    seen: list[str] = []

    def layer(name: str) -> Any:
        def around(record: Record, call_next: Any) -> object:
            seen.append(f"{name} in")
            result = call_next(record)
            seen.append(f"{name} out")
            return result

        return around

    app = App("shop")
    app.middleware(layer("a"))
    app.middleware(layer("b"))
    handler = app.surrounded(lambda _record: seen.append("handler"), CallForm())
    handler(a_record())
    assert seen == ["a in", "b in", "handler", "b out", "a out"]


def test_middleware_sees_what_the_handler_raises_and_may_change_it() -> None:
    def translate(record: Record, call_next: Any) -> object:
        try:
            return call_next(record)
        except KeyError as error:
            raise ValueError("unknown") from error

    def handler(_record: Record) -> None:
        raise KeyError

    app = App("shop")
    app.middleware(translate)
    with pytest.raises(ValueError, match="unknown"):
        app.surrounded(handler, CallForm())(a_record())


def test_a_lifespan_may_be_a_generator_or_return_a_context_manager() -> None:
    left: list[str] = []

    def generator() -> Iterator[str]:
        yield "pool"
        left.append("generator")

    with as_context(generator) as state:
        assert state == "pool"
    with as_context(lambda: contextlib.nullcontext("other")) as state:
        assert state == "other"
    with as_context(None) as state:
        assert state is None
    assert left == ["generator"]


def test_a_lifespan_that_is_neither_is_refused(golden: Golden) -> None:
    def wrong() -> Any:
        return 17

    with golden.raises(UsageError):
        as_context(wrong)


def test_a_record_gives_everything_that_a_handler_needs() -> None:
    record = a_record(value=b'{"n": 1}', headers=[("a", b"1"), ("a", None), ("b", b"2")])
    assert (record.topic, record.partition, record.offset) == ("orders", 0, 7)
    assert (record.key, record.value, record.text()) == (b"k", b'{"n": 1}', '{"n": 1}')
    assert record.json() == {"n": 1}
    assert record.headers == [("a", b"1"), ("a", None), ("b", b"2")]
    assert (record.header("a"), record.header("b"), record.header("c")) == (None, b"2", None)
    assert record.timestamp == 1_700_000_000_000
    assert (record.attempt, record.state, record.cancelled) == (2, "pool", False)


@pytest.mark.parametrize("read", [Record.text, Record.json])
def test_a_tombstone_has_no_text_and_says_so(read: Any) -> None:
    record = a_record(value=None)
    assert record.value is None
    with pytest.raises(ValueError, match=r"orders\[0\]@7.*tombstone"):
        read(record)


def test_an_empty_value_is_no_tombstone() -> None:
    assert a_record(value=b"").text() == ""


def test_records_have_no_value_equality() -> None:
    assert a_record() != a_record()
