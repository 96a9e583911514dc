"""An application with a handler of each kind. A tenth of the records fail for good."""

from __future__ import annotations

import asyncio

from window_consumer import App, Fatal, Produce, Record

app = App("smoke")


@app.handler("orders", group="smoke-threads")
def threads(order: Record) -> Produce:
    """Runs on a thread."""
    return answered("threads", order)


@app.handler("orders", group="smoke-processes")
def processes(order: Record) -> Produce:
    """Runs in a child process."""
    return answered("processes", order)


@app.handler("orders", group="smoke-coroutines")
async def coroutines(order: Record) -> Produce:
    """Runs in an event loop."""
    await asyncio.sleep(0)
    return answered("coroutines", order)


def answered(kind: str, order: Record) -> Produce:
    """Return the answer to an order, or fail."""
    number = order.json()
    if number % 10 == 0:
        raise Fatal(f"order {number} cannot be served")
    return Produce(f"{kind}-answers", value=str(number))
