"""Workers with an asynchronous ``Once`` within a program that has an event loop."""

from __future__ import annotations

import asyncio

import pytest
from sqlalchemy.ext.asyncio import create_async_engine
from sqlalchemy.pool import NullPool

from tests.database.once_shop import OVERTAKE, OnceShop
from tests.waiting import wait_until
from window_consumer import Running


@pytest.mark.parametrize("way", ["start", "running"])
def test_workers_with_an_asynchronous_once_start_in_a_running_loop(
    shop: OnceShop, way: str
) -> None:
    url = shop.url.replace("sqlite:", "sqlite+aiosqlite:")
    engine = create_async_engine(url, poolclass=NullPool)
    app = shop.app(shop.once(engine=engine), "coroutine")
    file = shop.file(**OVERTAKE)
    shop.fill("a", "b", "a", ids=("1", "2", "1"))

    async def finished(running: Running) -> None:
        await asyncio.to_thread(wait_until, lambda: running.counters["place"].finished == 3)

    async def main() -> None:
        if way == "running":
            async with app.running(file) as running:
                await finished(running)
            return
        with app.start(file) as running:
            await finished(running)

    asyncio.run(main())
    assert shop.placed == ["a", "b"]
