"""The handler and the test that docs/schema-registry.md shows."""

from __future__ import annotations

import sys
from types import ModuleType
from typing import Any

import pytest
import yaml

from tests.docs.pages import ROOT, blocks, module_of
from tests.schema_registry.orders import written
from tests.schema_registry.registry import Registry
from window_consumer.testing import DONE, TestApp

PAGE = ROOT / "docs/schema-registry.md"


@pytest.fixture
def page(monkeypatch: pytest.MonkeyPatch) -> Any:
    """The page's blocks as one module."""
    module = ModuleType("page_about_registries")
    monkeypatch.setitem(sys.modules, module.__name__, module)
    exec(compile(module_of(PAGE), str(PAGE), "exec"), module.__dict__)  # noqa: S102 - a reader would run it, too
    return module


def test_the_test_on_the_page_passes(page: Any) -> None:
    page.test_an_order_is_charged()


def test_the_handler_on_the_page_reads_avro_with_its_configuration(
    page: Any, registry: Registry, capsys: pytest.CaptureFixture[str]
) -> None:
    shown = yaml.safe_load(blocks(PAGE, "yaml")[0].text)
    charge = shown["workers"]["charge"]
    charge["schema"]["registry"] = registry.url
    with TestApp(page.app, config={"workers": {"charge": charge}}) as shop:
        assert shop.send("orders", written(registry.url, "avro")).outcome is DONE
    assert "ada pays 12.50" in capsys.readouterr().out
