"""Which event loop the coroutines of a test run on."""

from __future__ import annotations

import asyncio

import pytest
import uvloop

from window_consumer.runtime.pools import event_loop


@pytest.fixture(params=["asyncio", "uvloop"])
def each_loop(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Python's own loop and uvloop's in turn."""
    if request.param == "uvloop":
        assert isinstance(event_loop.make_loop(), uvloop.Loop)
    else:
        monkeypatch.setattr(event_loop, "make_loop", asyncio.new_event_loop)
    return str(request.param)
