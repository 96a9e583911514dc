"""Coroutines as handlers of a whole application, on the embedded broker."""

from __future__ import annotations

import pytest

from tests.commands import Commands, kafka_of
from window_consumer.kafka.embedded import EmbeddedBroker

SHOP = """
import asyncio
import threading

from window_consumer import App, Record, current_record

app = App("shop")


def say(*words):
    # In one write: several loops talk.
    print(" ".join(map(str, words)) + "\\n", end="", flush=True)


class Session:
    \"\"\"Belongs to one loop, as a session of aiohttp or a pool of asyncpg does.\"\"\"

    def __init__(self):
        self.loop = asyncio.get_running_loop()

    async def get(self):
        assert asyncio.get_running_loop() is self.loop
        await asyncio.sleep(0.001)
        return "answer"


@app.lifespan
async def session():
    name = threading.current_thread().name
    say("enter", name)
    yield Session()
    say("leave", name)


@app.middleware(around="coroutines")
async def timed(record, call_next):
    name = asyncio.current_task().get_name()
    say("before", name, record.attempt)
    try:
        await call_next(record)
    except ValueError as error:
        say("saw", name, error)
        raise
    finally:
        say("after", name)


@app.handler("orders", group="shop", ordering="key", concurrency=100,
             retry={"attempts": 2, "backoff": "10ms..10ms", "on_failure": "overtake"})
async def charge(order: dict, record: Record) -> None:
    answer = await record.state.get()
    assert current_record() is record
    say("charge", asyncio.current_task().get_name(), order["id"], answer)
    if record.attempt == 1:
        raise ValueError("not yet")


@app.handler("orders", group="warehouse")
async def send(record: Record) -> None:
    say("send", await record.state.get())


@app.handler("orders", group="books")
def book(record: Record) -> None:
    say("book", type(record.state).__name__)
"""

EMBEDDING = """
import threading
from shop import app

with app.start("workers.yaml") as running:
    while sum(each.processed for each in running.counters.values()) < 3 and not running.wait(0.01):
        pass
print([each.name for each in threading.enumerate() if each.name.startswith("wc-")])
"""


@pytest.fixture
def shop(commands: Commands, embedded: EmbeddedBroker) -> Commands:
    embedded.create_topic("orders", 1)
    embedded.produce("orders", b'{"id": 7}', key=b"k")
    commands.application(SHOP)
    workers: dict[str, object] = {"charge": {}, "send": {}, "book": {}}
    commands.configure({"kafka": kafka_of(embedded), "workers": workers})
    return commands


def test_coroutines_their_middleware_and_their_lifespan_on_the_loops_of_their_workers(
    shop: Commands,
) -> None:
    ended = shop.script(EMBEDDING)
    assert ended.code == 0, ended.err
    lines = ended.out.splitlines()
    loops = [f"wc-{each}-loop" for each in ("charge", "send", "lifespan")]
    assert lines[:3] == [f"enter {each}" for each in loops]
    assert lines[-4:] == [*(f"leave {each}" for each in reversed(loops)), "[]"]
    name = "wc-charge orders[0]@0"
    call = f"charge {name} 7 answer"
    assert [each for each in lines if name in each] == [
        *(f"before {name} 1", call, f"saw {name} not yet", f"after {name}"),
        *(f"before {name} 2", call, f"after {name}"),
    ]
    assert "book Session" in lines
    assert "send answer" in lines
