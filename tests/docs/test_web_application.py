"""A web application with workers, on FastAPI and uvicorn: it serves and consumes."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.commands import DEADLINE_S, Command
from tests.docs.pages import ROOT
from tests.waiting import wait_until
from window_consumer.kafka.embedded import EmbeddedBroker

WEB = """
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from fastapi import FastAPI, Request
from shop import app


def end_the_server(error: BaseException) -> None:
    signal.raise_signal(signal.SIGTERM)


@asynccontextmanager
async def lifespan(web: FastAPI) -> AsyncIterator[dict[str, object]]:
    async with app.running("workers.yaml", on_failure=end_the_server) as running:
        yield {"running": running}


web = FastAPI(lifespan=lifespan)


@web.get("/processed")
async def processed(request: Request) -> dict[str, int]:
    return {name: did.processed for name, did in request.state.running.counters.items()}
"""

WITH_ONCE = """
import sqlalchemy as sa
from sqlalchemy.ext.asyncio import create_async_engine

from window_consumer import App, Record
from window_consumer.database import Once

app = App("shop")
metadata = sa.MetaData()
charges = sa.Table("charges", metadata, sa.Column("id", sa.String))
once = Once(create_async_engine("sqlite+aiosqlite:///shop.db"))
engine = sa.create_engine("sqlite:///shop.db")
metadata.create_all(engine)
once.tables.metadata.create_all(engine)
engine.dispose()


@app.handler("orders", once=once)
async def charge(order: Record) -> None:
    order.json()
    await order.session.execute(sa.insert(charges).values(id=order.id))
"""

SHOPS = {"plain": (ROOT / "examples" / "shop.py").read_text("utf-8"), "with once": WITH_ONCE}


@contextmanager
def serving(directory: Path, shop: str, broker: EmbeddedBroker) -> Iterator[Command]:
    """Run the application with uvicorn, and a worker that stops at the first failure."""
    (directory / "web.py").write_text(WEB)
    (directory / "shop.py").write_text(SHOPS[shop])
    stops = {"group": "shop", "retry": {"attempts": 1, "when_spent": "stop"}}
    kafka = {"bootstrap.servers": broker.bootstrap, "consumer": {"fetch.wait.max.ms": 10}}
    workers = {"charge": {"ordering": "unordered", **stops}}
    (directory / "workers.yaml").write_text(json.dumps({"kafka": kafka, "workers": workers}))
    process = subprocess.Popen(
        [sys.executable, "-m", "uvicorn", "web:web", "--port", "0"],
        cwd=directory,
        env={**os.environ, "PYTHONPATH": f"{directory}{os.pathsep}{ROOT}"},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        yield Command(process)
    finally:
        if process.poll() is None:
            process.kill()
            process.wait(DEADLINE_S)


def address_of(server: Command) -> str:
    server.wait_for("http://")
    return str(re.findall(r"http://\S+", server.said)[0])


def wait_for_processed(address: str, count: int) -> None:
    def is_so() -> bool:
        with urllib.request.urlopen(f"{address}/processed", timeout=DEADLINE_S) as answer:  # noqa: S310 - http
            return bool(json.load(answer) == {"charge": count})

    wait_until(is_so, why=f"{count} processed")


@pytest.mark.parametrize("shop", list(SHOPS))
def test_it_serves_and_consumes_and_drains_when_the_server_ends(
    embedded: EmbeddedBroker, tmp_path: Path, shop: str
) -> None:
    embedded.create_topic("orders", 2)
    embedded.produce("orders", b'{"customer": "c", "amount": 1}')
    with serving(tmp_path, shop, embedded) as server:
        address = address_of(server)
        wait_for_processed(address, 1)
        embedded.produce("orders", b'{"customer": "c", "amount": 2}')
        wait_for_processed(address, 2)
        server.signal(signal.SIGTERM)
        ended = server.wait()
    assert "shutdown complete" in ended.err
    assert ended.code in {0, -signal.SIGTERM}  # uvicorn ends by the signal that it was sent


def test_a_worker_that_stops_by_itself_ends_the_server(
    embedded: EmbeddedBroker, tmp_path: Path
) -> None:
    embedded.create_topic("orders", 2)
    with serving(tmp_path, "plain", embedded) as server:
        address_of(server)
        embedded.produce("orders", b"no order")
        code = server.process.wait(DEADLINE_S)
        server.wait_for("WorkerStoppedError")
    assert code != 0
