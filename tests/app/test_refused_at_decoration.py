"""What cannot work is refused where it is decorated, not when the first record comes."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AbstractContextManager
from typing import Any

import pytest

from tests.golden_texts import Golden
from window_consumer import App, Record, UsageError

HERE = r"test_refused_at_decoration\.py:\d+: "


@pytest.fixture
def app() -> App:
    return App("shop")


def handle(_record: Record) -> None: ...


class Shop:
    def charge(self, order: Record) -> None: ...

    def around(self, record: Record, call_next: Callable[[Record], object]) -> object: ...

    def untyped(self, order: Any) -> None: ...

    @contextlib.contextmanager
    def opened(self) -> Iterator[int]:
        yield 1

    @staticmethod
    def alone(order: Record) -> None: ...


def test_decorators_without_parentheses_are_refused(app: App, golden: Golden) -> None:
    untyped: Any = app
    with golden.raises(UsageError):
        untyped.handler(handle)
    with golden.raises(UsageError):
        untyped.batch_handler(handle)


def test_topics_in_a_list_are_refused(app: App, golden: Golden) -> None:
    untyped: Any = app
    with golden.raises(UsageError):
        untyped.handler(["orders"])


def test_methods_without_their_object_are_refused(app: App, golden: Golden) -> None:
    untyped: Any = app
    decorators = (untyped.handler("orders"), untyped.batch_handler("orders"), untyped.middleware)
    for decorate in decorators:
        for function in (Shop.charge, Shop.untyped, Shop.around):
            with golden.raises(UsageError):
                decorate(function)
    with golden.raises(UsageError):
        untyped.lifespan(Shop.opened)


def test_methods_with_their_object_are_accepted(app: App) -> None:
    shop = Shop()
    app.handler("orders")(shop.charge)
    app.handler("orders")(shop.untyped)
    app.handler("orders")(Shop.alone)
    app.middleware(shop.around)
    app.lifespan(shop.opened)
    functions = [each.function for each in app.handlers.values()]
    assert functions == [shop.charge, shop.untyped, Shop.alone]
    assert app.surroundings == ("Shop.opened", "Shop.around")


def takes_the_record(record: Record) -> None: ...


def takes_three(record: Record, call_next: object, more: object) -> None: ...


def takes_it_by_name(record: Record, *, call_next: object) -> None: ...


@pytest.mark.parametrize("function", [handle, takes_the_record, takes_three, takes_it_by_name])
def test_middleware_that_cannot_be_called_is_refused(
    app: App, function: Any, golden: Golden
) -> None:
    with golden.raises(UsageError):
        app.middleware(function)
    with golden.raises(UsageError):
        app.middleware(around="batches")(function)


def takes_anything(*given: object) -> None: ...


def takes_more_by_itself(record: Record, call_next: object, log: object = None) -> None: ...


@pytest.mark.parametrize("function", [takes_anything, takes_more_by_itself])
def test_middleware_that_can_be_called_is_accepted(app: App, function: Any) -> None:
    app.middleware(function)
    assert app.surroundings == (function.__qualname__,)


def test_conditions_redactors_and_tokens_of_another_form_are_refused(
    app: App, golden: Golden
) -> None:
    untyped: Any = app
    with golden.raises(UsageError):
        untyped.handler("orders", when=lambda: True)(handle)
    with golden.raises(UsageError):
        untyped.redact(lambda: "")
    with golden.raises(UsageError):
        untyped.oauth_token(lambda: ("", 0.0))


def opens_nothing() -> None:
    handle.__name__.upper()


def returns_a_number() -> int:
    return 5


def leaves_early() -> None:
    if handle.__name__:
        return
    handle.__name__.upper()


async def awaits_nothing() -> int:
    return 5


def wants_the_application(app: App) -> Iterator[App]:
    yield app


@pytest.mark.parametrize(
    "function", [opens_nothing, returns_a_number, leaves_early, awaits_nothing, lambda: None]
)
def test_a_lifespan_without_a_yield_is_refused(app: App, function: Any, golden: Golden) -> None:
    with golden.raises(UsageError):
        app.lifespan(function)


def test_a_lifespan_that_takes_something_is_refused(app: App, golden: Golden) -> None:
    untyped: Any = app
    with golden.raises(UsageError):
        untyped.lifespan(wants_the_application)


def returns_one() -> AbstractContextManager[int]:
    return contextlib.nullcontext(1)


def returns_one_or_another(which: int = 1) -> AbstractContextManager[int] | None:
    return contextlib.nullcontext(1) if which else None


def returns_one_or_a_number() -> Any:
    return handle.__doc__ or 5


def always_raises() -> AbstractContextManager[int]:
    raise ConnectionError


async def yields_later() -> AsyncIterator[int]:
    yield 1


@pytest.mark.parametrize(
    "function",
    [
        returns_one,
        returns_one_or_another,
        always_raises,
        yields_later,
        contextlib.nullcontext,
        contextlib.contextmanager(lambda: iter([1])),
        returns_one_or_a_number,
    ],
)
def test_a_lifespan_that_may_open_something_is_accepted(app: App, function: Any) -> None:
    app.lifespan(function)
    assert len(app.surroundings) == 1
