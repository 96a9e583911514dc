import asyncio
import os
import signal
import uuid
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import sqlalchemy as sa
from fastapi import FastAPI, Request
from shop import app, engine, metadata, orders, outbox

from window_consumer import Producer


def end_the_server(error: BaseException) -> None:
    signal.raise_signal(signal.SIGTERM)


@asynccontextmanager
async def lifespan(web: FastAPI) -> AsyncIterator[dict[str, Any]]:
    async with engine.begin() as connection:  # in production: a migration
        await connection.run_sync(metadata.create_all)
    producer = Producer({"bootstrap.servers": os.environ["KAFKA_BOOTSTRAP"]})
    try:
        async with app.running("workers.yaml", on_failure=end_the_server) as running:
            yield {"producer": producer, "running": running}
    finally:
        await asyncio.to_thread(producer.close)
        await engine.dispose()


web = FastAPI(lifespan=lifespan)


@web.post("/orders")
async def place() -> dict[str, str]:
    order = str(uuid.uuid4())
    async with engine.begin() as connection:
        await connection.execute(sa.insert(orders).values(id=order))
        await outbox.add_async(connection, "orders", order.encode(), order.encode())
    return {"id": order}


@web.post("/clicks/{page}")
async def click(page: str, request: Request) -> dict[str, int]:
    sent = await request.state.producer.send("clicks", page.encode())
    return {"partition": sent.partition, "offset": sent.offset}
