"""The example of docs/schedules.md, in the test kit, where a night passes at once."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path

import pytest

from tests.docs.pages import ROOT, blocks, module_of
from window_consumer.testing import TestApp

PAGE = ROOT / "docs/schedules.md"


def test_the_example_of_the_page_reports_at_two_in_the_night(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("KAFKA_BOOTSTRAP", "127.0.0.1:1")
    config = tmp_path / "workers.yaml"
    config.write_text(blocks(PAGE, "yaml")[0].text)
    (tmp_path / "nightly_shop.py").write_text(module_of(PAGE))
    monkeypatch.syspath_prepend(tmp_path)
    with TestApp(import_module("nightly_shop").app, config=config) as wc_app:
        wc_app.advance("2h")
        assert capsys.readouterr().out == ""
        wc_app.advance("1h")
        expected = 'schedule/nightly-report/2023-11-15T01:00:00Z {"kind": "nightly"}\n'
        assert capsys.readouterr().out == expected


def test_the_page_is_short() -> None:
    assert len(PAGE.read_text("utf-8").split()) <= 1200
