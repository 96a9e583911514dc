"""The tasks of docs/celery.md, run by Celery, and the handlers that they become, do the same."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import yaml
from attrs import define, field
from celery.contrib.testing.worker import start_worker

from tests.docs.pages import ROOT, blocks
from tests.waiting import wait_until
from window_consumer.testing import DONE, RETRYING, TestApp

PAGE = ROOT / "docs" / "celery.md"
ORDER = {"customer": "ann", "amount": 10}
PICTURES = ["b", "a", "c"]
PUBLISHED = ("publish", "summer", ["a.small", "b.small", "c.small"])


@define
class Shop:
    """What tasks and handlers call; the bank fails as often as it is told."""

    did: list[Any] = field(factory=list)
    failures: int = 0

    def charge(self, order: dict[str, Any]) -> None:
        if self.failures:
            self.failures -= 1
            raise OSError("no bank")
        self.did.append(("charge", order))

    def remind(self, customer: str) -> None:
        self.did.append(("remind", customer))

    def shrink(self, picture: str) -> str:
        return f"{picture}.small"

    def publish(self, album: str, thumbnails: list[str]) -> None:
        self.did.append(("publish", album, thumbnails))


@pytest.fixture
def shop(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Shop:
    shop = Shop()
    monkeypatch.setitem(sys.modules, "shop", shop)
    monkeypatch.setenv("BROKER", "memory://")
    monkeypatch.setenv("BACKEND", "cache+memory://")
    monkeypatch.chdir(tmp_path)
    return shop


def program(file: str) -> Any:
    (text,) = [each.text for each in blocks(PAGE, "python") if each.file == file]
    module = ModuleType(file.removesuffix(".py"))
    exec(text, module.__dict__)  # noqa: S102 - the page's own
    return module


@pytest.fixture
def tasks(shop: Shop) -> Iterator[Any]:  # noqa: ARG001 - its modules
    tasks = program("tasks.py")
    tasks.app.set_current()
    with start_worker(tasks.app, pool="solo", perform_ping_check=False, loglevel="ERROR"):
        yield tasks
    tasks.app.close()


@pytest.fixture
def handlers(shop: Shop) -> Iterator[TestApp]:  # noqa: ARG001 - as tasks
    (block,) = blocks(PAGE, "yaml")
    with TestApp(program("handlers.py").app, yaml.safe_load(block.text)) as wc_app:
        yield wc_app


def test_celery_runs_the_tasks_of_the_page(tasks: Any, shop: Shop) -> None:
    tasks.charge.delay(ORDER)
    tasks.upload.delay("summer", PICTURES)
    wait_until(lambda: len(shop.did) == 2, why="an order and an album")
    assert sorted(shop.did) == [("charge", ORDER), PUBLISHED]


def test_the_handlers_of_the_page_do_the_same(handlers: TestApp, shop: Shop) -> None:
    handlers.send("orders", ORDER, key="ann")
    handlers.send("uploads", {"album": "summer", "pictures": PICTURES})
    assert shop.did == [("charge", ORDER), PUBLISHED]
    handlers.advance("29m")
    assert len(shop.did) == 2
    handlers.advance("2m")
    assert shop.did[2:] == [("remind", "ann")]


def test_a_failed_charge_is_tried_as_often_as_before(handlers: TestApp, shop: Shop) -> None:
    shop.failures = 4
    result = handlers.send("orders", json.dumps(ORDER), key="ann")
    assert result.outcome is RETRYING
    handlers.advance("1h")
    assert (result.outcome, result.attempts) == (DONE, 5)
