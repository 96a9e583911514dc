"""Which event loop coroutines get."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

import pytest

from tests.runtime.coroutines import Coroutines
from window_consumer.model.record import Record


def test_the_loop_is_uvloops_where_that_is_installed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "uvloop.py").write_text(
        "import asyncio\n\n\nclass Loop(asyncio.SelectorEventLoop):\n    pass\n\n\n"
        "def new_event_loop():\n    return Loop()\n"
    )
    monkeypatch.delitem(sys.modules, "uvloop", raising=False)
    monkeypatch.syspath_prepend(tmp_path)
    loops: list[str] = []

    async def handler(_record: Record) -> None:
        loops.append(type(asyncio.get_running_loop()).__module__)

    with Coroutines(handler) as coroutines:
        coroutines.run(0)
    monkeypatch.delitem(sys.modules, "uvloop")
    assert loops == ["uvloop"]
