"""Coroutines and plain functions in one application: what goes together, and what is refused."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import AsyncIterator, Iterator
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Any

import pytest

from tests.golden_texts import Golden
from tests.testing.shops import config
from window_consumer import App, ConfigError, Record, UsageError
from window_consumer.app.limits import bounds_of
from window_consumer.plan.handlers import is_async
from window_consumer.plan.lifespans import is_async_lifespan
from window_consumer.runtime.pools.registry import KINDS
from window_consumer.testing import DONE, TestApp


async def coroutine(_record: Record) -> None: ...


def function(_record: Record) -> None: ...


def plain_layer(record: Record, call_next: Any) -> object:
    return call_next(record)


async def async_layer(record: Record, call_next: Any) -> object:
    return await call_next(record)


def planned(app: App, **workers: Any) -> None:
    TestApp(app, config(**workers))


@pytest.mark.parametrize(
    ("handler", "layer", "why"),
    [
        (coroutine, plain_layer, r"middleware plain_layer is a plain function.*write it as async"),
        (function, async_layer, r"middleware async_layer is a coroutine.*write it as a plain"),
    ],
)
def test_middleware_that_cannot_surround_a_handler_is_refused_at_the_start(
    handler: Any, layer: Any, why: str
) -> None:
    app = App("shop")
    app.middleware(layer)
    app.handler("orders", group="shop", name="charge")(handler)
    with pytest.raises(UsageError, match=why):
        planned(app, charge={})


def test_an_application_with_both_kinds_of_handlers_has_middleware_for_each() -> None:
    app = App("shop")
    seen: list[str] = []

    @app.middleware(around="functions")
    def around_functions(record: Record, call_next: Any) -> object:
        seen.append("function")
        return call_next(record)

    @app.middleware(around="coroutines")
    async def around_coroutines(record: Record, call_next: Any) -> object:
        seen.append("coroutine")
        return await call_next(record)

    app.handler("orders", group="a", name="charge")(coroutine)
    app.handler("refunds", group="b", name="refund")(function)
    with TestApp(app, config(charge={}, refund={})) as wc_app:
        assert wc_app.send("orders").outcome is DONE
        assert wc_app.send("refunds").outcome is DONE
    assert seen == ["coroutine", "function"]


def test_one_worker_cannot_run_both_kinds_of_handlers(golden: Golden) -> None:
    app = App("shop")
    app.handler("orders", group="a", name="charge", when=lambda _record: True)(coroutine)
    app.handler("orders", group="a", name="refund")(function)
    with golden.raises(ConfigError):
        planned(app, work={"handler": ["charge", "refund"]})


def test_a_condition_cannot_be_a_coroutine(golden: Golden) -> None:
    with golden.raises(UsageError):
        App("shop").handler("orders", when=coroutine)(function)


class WithCall:
    async def __call__(self, _record: Record) -> None: ...

    async def method(self, _record: Record) -> None: ...


@functools.wraps(coroutine)
def wrapper(record: Record) -> Any:
    return coroutine(record)


@pytest.mark.parametrize(
    "handler", [coroutine, WithCall(), WithCall().method, wrapper, functools.partial(coroutine)]
)
def test_every_form_of_a_coroutine_function_is_known_as_one_and_awaited(handler: Any) -> None:
    assert is_async(handler)
    app = App("shop")
    app.handler("orders", group="shop", name="charge")(handler)
    with TestApp(app, config(charge={})) as wc_app:
        assert wc_app.send("orders").outcome is DONE


@pytest.mark.parametrize("handler", [function, lambda _record: None, print, App("shop").plan])
def test_plain_functions_are_not_taken_for_coroutines(handler: Any) -> None:
    assert not is_async(handler)


async def generates() -> AsyncIterator[str]:
    yield "pool"


def returns() -> AbstractAsyncContextManager[str]:
    return contextlib.asynccontextmanager(generates)()


class Session:
    async def __aenter__(self) -> str:
        return "pool"

    async def __aexit__(self, *_: object) -> None: ...


@pytest.mark.parametrize(
    "lifespan", [generates, returns, contextlib.asynccontextmanager(generates), Session]
)
def test_an_asynchronous_lifespan_may_have_every_form(lifespan: Any) -> None:
    app = App("shop")
    seen: list[Any] = []
    app.lifespan(lifespan)

    @app.handler("orders", group="shop")
    async def charge(record: Record) -> None:
        seen.append(record.state)

    assert is_async_lifespan(lifespan)
    with TestApp(app, config(charge={})) as wc_app:
        wc_app.send("orders")
    assert seen == ["pool"]


def plain() -> Iterator[str]:
    yield "pool"


@pytest.mark.parametrize("lifespan", [plain, contextlib.contextmanager(plain), lambda: 17])
def test_plain_lifespans_are_not_taken_for_asynchronous_ones(lifespan: Any) -> None:
    assert not is_async_lifespan(lifespan)


def opens() -> Any:
    return Session()


def test_a_lifespan_that_does_not_say_that_it_is_asynchronous_is_refused_with_how(
    golden: Golden,
) -> None:
    app = App("shop")
    app.lifespan(opens)
    app.handler("orders", group="shop", name="charge")(coroutine)
    with golden.raises(UsageError), TestApp(app, config(charge={})):
        pass


def test_a_lifespan_with_an_asynchronous_generator_method_belongs_to_its_object(
    tmp_path: Path,
) -> None:
    class Pools:
        def __init__(self) -> None:
            self.open = 0

        async def pool(self) -> AsyncIterator[str]:
            self.open += 1
            yield str(tmp_path)
            self.open -= 1

    pools, app = Pools(), App("shop")
    app.lifespan(pools.pool)
    app.handler("orders", group="shop", name="charge")(coroutine)
    with TestApp(app, config(charge={})) as wc_app:
        assert pools.open == 1
        assert wc_app.send("orders").outcome is DONE
    assert pools.open == 0


def test_what_ten_thousand_waiting_coroutines_hold_is_counted() -> None:
    app = App("shop")
    app.handler("orders", group="a", name="charge", concurrency=10_000)(coroutine)
    app.handler("orders", group="b", name="refund", concurrency=10_000)(function)
    with TestApp(app, config(charge={}, refund={})) as wc_app:
        charge, refund = map(bounds_of, wc_app.plan.workers)
    assert charge.resident_bytes - refund.resident_bytes == 10_000 * KINDS["asyncio"].slot_bytes
