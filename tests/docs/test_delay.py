"""The example of docs/delay.md, in the test kit, where half an hour passes at once."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path

import pytest

from tests.docs.pages import ROOT, blocks, module_of
from window_consumer.testing import TestApp

PAGE = ROOT / "docs/delay.md"


def test_the_example_of_the_page_reminds_after_half_an_hour(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("KAFKA_BOOTSTRAP", "127.0.0.1:1")
    config = tmp_path / "workers.yaml"
    config.write_text(blocks(PAGE, "yaml")[0].text)
    (tmp_path / "reminding_shop.py").write_text(module_of(PAGE))
    monkeypatch.syspath_prepend(tmp_path)
    with TestApp(import_module("reminding_shop").app, config=config) as wc_app:
        wc_app.send("orders", "coffee", key="anna")
        wc_app.advance("29m")
        assert capsys.readouterr().out == ""
        wc_app.advance("61s")
        assert capsys.readouterr().out == "remind b'anna'\n"


def test_the_page_is_short() -> None:
    assert len(PAGE.read_text("utf-8").split()) <= 1200
