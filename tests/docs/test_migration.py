"""The actor of docs/migration.md, run by dramatiq, and the handler that it becomes, do the same."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from types import ModuleType
from typing import Any

import dramatiq
import pytest
import yaml
from attrs import define, field
from dramatiq.brokers.stub import StubBroker

from tests.docs.pages import ROOT, blocks
from tests.waiting import wait_until
from window_consumer.testing import DONE, TestApp

PAGE = ROOT / "docs" / "migration.md"
ORDER = {"customer": "ann", "amount": 10}


@define
class Shop:
    """What actor and handler call; the next calls raise these errors."""

    charged: list[dict[str, Any]] = field(factory=list)
    calls: int = 0
    errors: list[Exception] = field(factory=list)

    def charge(self, order: dict[str, Any]) -> None:
        self.calls += 1
        if self.errors:
            raise self.errors.pop(0)
        self.charged.append(order)


@pytest.fixture
def shop(monkeypatch: pytest.MonkeyPatch) -> Shop:
    shop = Shop()
    monkeypatch.setitem(sys.modules, "shop", shop)
    return shop


def program(file: str) -> Any:
    (text,) = [each.text for each in blocks(PAGE, "python") if each.file == file]
    module = ModuleType(file.removesuffix(".py"))
    exec(text, module.__dict__)  # noqa: S102 - the page's own
    return module


@pytest.fixture
def actor(shop: Shop) -> Iterator[Any]:  # noqa: ARG001 - its module
    broker = StubBroker()
    dramatiq.set_broker(broker)
    charge = program("dramatiq_actor.py").charge
    worker = dramatiq.Worker(broker, worker_timeout=50, worker_threads=1)
    worker.start()
    yield charge
    worker.stop()
    broker.close()


@pytest.fixture
def handler(shop: Shop) -> Iterator[TestApp]:  # noqa: ARG001 - as actor
    (block,) = blocks(PAGE, "yaml")
    with TestApp(program("handlers.py").app, yaml.safe_load(block.text)) as wc_app:
        yield wc_app


def test_dramatiq_tries_the_actor_three_times(actor: Any, shop: Shop) -> None:
    shop.errors = [OSError("no bank")] * 2
    actor.send_with_options(args=(ORDER,), min_backoff=1, max_backoff=2)
    wait_until(lambda: shop.charged == [ORDER], why="the third attempt")
    assert shop.calls == 3


def test_dramatiq_does_not_try_again_what_the_actor_throws(actor: Any, shop: Shop) -> None:
    shop.errors = [ValueError("no amount")]
    actor.send_with_options(args=(ORDER,), min_backoff=1, max_backoff=2)
    actor.broker.join("orders", timeout=60_000, fail_fast=False)
    assert (shop.charged, shop.calls) == ([], 1)


def test_the_worker_tries_the_handler_as_often(handler: TestApp, shop: Shop) -> None:
    shop.errors = [OSError("no bank")] * 2
    result = handler.send("orders", ORDER, key="ann")
    handler.advance("10s")
    assert (result.outcome, shop.charged, shop.calls) == (DONE, [ORDER], 3)
