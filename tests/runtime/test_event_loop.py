"""Which event loop coroutines get."""

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.runtime.coroutines import Coroutines
from window_consumer.model.record import Record
from window_consumer.runtime.pools.event_loop import EventLoop


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


def test_the_loop_notes_what_it_computes_and_how_late_it_is() -> None:
    loop = EventLoop("wc-test-loop")
    loop.start()

    def block(function: Callable[[], object]) -> tuple[float, float]:
        """Return what was noted of a time in which something did not give the loop back."""

        async def call() -> tuple[float, float, float]:
            # On the loop itself: it does not go round meanwhile.
            before = loop.pulse_at, loop.computed_s, loop.late_s
            function()
            return before

        pulse_at, computed_s, late_s = loop.run(call())
        while loop.pulse_at == pulse_at:
            time.sleep(0.01)
        return loop.computed_s - computed_s, loop.late_s - late_s

    def compute() -> None:
        deadline = time.thread_time() + 0.4
        while time.thread_time() < deadline:
            pass

    computed_s, late_s = block(compute)
    assert computed_s >= 0.4
    assert late_s >= 0.25
    computed_s, late_s = block(lambda: time.sleep(0.4))
    assert computed_s < 0.3
    assert late_s >= 0.25
    assert loop.stop(60)
