"""Which event loop the coroutines of a test run on; pools of children that leave nothing."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import Any

import pytest
import uvloop

from tests.runtime.holdings import Holdings
from tests.runtime.process_pools import MakePool, Pool
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


@pytest.fixture
def pools() -> Iterator[MakePool]:
    made: list[Pool] = []

    def make(*arguments: Any, **rules: Any) -> Pool:
        pool = Pool(*arguments, **rules)
        made.append(pool)
        pool.pool.start()
        return pool

    before = Holdings.now()
    yield make
    for pool in made:
        assert pool.pool.stop(60.0) == 0
    assert before.left() == []
