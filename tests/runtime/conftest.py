"""Which event loop the coroutines of a test run on."""

from __future__ import annotations

import asyncio

import pytest

from window_consumer.runtime.pools import event_loop


@pytest.fixture(params=["asyncio", "uvloop"])
def each_loop(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Python's own loop and uvloop's in turn, where that is installed."""
    if request.param == "uvloop":
        pytest.importorskip("uvloop", reason="uvloop is not installed (the extra uvloop)")
    else:
        monkeypatch.setattr(event_loop, "make_loop", asyncio.new_event_loop)
    return str(request.param)
