"""Which event loop the coroutines of a test run on."""

from __future__ import annotations

import sys

import pytest
import uvloop

from window_consumer.runtime.pools.event_loop import make_loop


@pytest.fixture(params=["asyncio", "uvloop"])
def each_loop(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Python's own loop, as without uvloop, and uvloop's in turn."""
    if request.param == "asyncio":
        monkeypatch.setitem(sys.modules, "uvloop", None)
    loop = make_loop()
    loop.close()
    assert isinstance(loop, uvloop.Loop) is (request.param == "uvloop")
    return str(request.param)
