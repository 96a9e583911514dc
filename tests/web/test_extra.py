"""What is said where the extra is not installed."""

from __future__ import annotations

import sys
from contextlib import ExitStack
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from window_consumer.app.admin import admin_board, admin_of_copies
from window_consumer.config.listening import AdminConfig
from window_consumer.model.errors import UsageError


def plan(listen: str | None) -> Any:
    return SimpleNamespace(config=SimpleNamespace(admin=AdminConfig(listen=listen)), workers=())


def test_where_the_extra_is_missing_its_name_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "window_consumer.web.server", None)
    monkeypatch.delattr("window_consumer.web.server", raising=False)
    told = pytest.raises(UsageError, match=r"pip install 'window-consumer\[web\]'")
    with told, ExitStack() as beside:
        admin_board(plan("127.0.0.1:0"), None, beside)
    with told, admin_of_copies(plan("127.0.0.1:0"), {"1": Path("1.admin")}):
        pass


def test_where_nothing_is_to_listen_the_extra_is_not_needed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(sys.modules, "window_consumer.web.server", None)
    monkeypatch.delattr("window_consumer.web.server", raising=False)
    with ExitStack() as beside, admin_of_copies(plan(None), {}):
        assert admin_board(plan(None), None, beside) is None
