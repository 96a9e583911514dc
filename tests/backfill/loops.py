"""An application of coroutines, whose lifespan belongs to their event loop."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

from window_consumer import App, Record

app = App("loops")

seen: list[int] = []
entered: list[str] = []


@app.lifespan
async def resources() -> AsyncIterator[asyncio.AbstractEventLoop]:
    entered.append("entered")
    yield asyncio.get_running_loop()
    entered.append("left")


@app.handler("orders", group="loops")
async def charge(record: Record) -> None:
    """Check that it is called on the loop of the lifespan."""
    assert record.state is asyncio.get_running_loop()
    seen.append(record.offset)
