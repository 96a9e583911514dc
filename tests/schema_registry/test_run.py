"""Values with schemas on a broker: threads, processes, and an event loop that is not held up."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.commands import Commands, kafka_of
from tests.schema_registry.orders import AvroOrder, unframed, written
from tests.schema_registry.registry import Registry
from tests.waiting import wait_until
from window_consumer import App
from window_consumer.kafka.embedded import EmbeddedBroker

SHOP = """\
from tests.schema_registry.orders import Order
from window_consumer import App

app = App("shop")


@app.handler("orders", group="shop")
def charge(order: Order) -> None:
    print(f"charged {order.id}\\n", end="", flush=True)  # in one write
"""


@pytest.mark.parametrize("pool", ["threads", "processes"])
def test_a_worker_reads_values_in_each_pool(
    pool: str, commands: Commands, embedded: EmbeddedBroker, registry: Registry
) -> None:
    embedded.create_topic("orders", 1)
    value = written(registry.url, "json", id=100)
    for number in range(10):
        embedded.produce("orders", value.replace(b"100", str(number).encode()))
    embedded.produce("orders", unframed("json"))
    commands.application(SHOP)
    schema = {"registry": registry.url, "format": "json"}
    worker = {"schema": schema, "pool": pool, "concurrency": 2}
    commands.configure({"kafka": kafka_of(embedded), "workers": {"charge": worker}})
    running = commands.start("run", "shop:app")
    running.wait_for("charged", times=10)
    ended = running.stop()
    assert ended.summary() == {"processed": 10, "dead_lettered": 1}
    assert {f"charged {number}" for number in range(10)} <= {*ended.out.splitlines()}


def test_a_slow_registry_holds_up_no_other_coroutine(
    embedded: EmbeddedBroker, registry: Registry, tmp_path: Path
) -> None:
    embedded.create_topic("orders", 1)
    app, got = App("shop"), list[int]()

    @app.handler("orders", group="shop")
    async def charge(order: AvroOrder) -> None:
        got.append(order.id)

    known = written(registry.url, "avro", id=1)
    other = dict(registry.schemas[1])
    registry.schemas[2] = {**other, "schema": other["schema"].replace('"Order"', '"Later"')}
    schema = {"registry": registry.url, "format": "avro", "timeout": "60s"}
    file = tmp_path / "workers.yaml"
    kafka = f"kafka: {{bootstrap.servers: '{embedded.bootstrap}'}}"
    file.write_text(f"{kafka}\nworkers: {{charge: {{schema: {schema}}}}}\n")
    with app.start(file, start_timeout=60) as running:
        embedded.produce("orders", known)
        wait_until(lambda: got == [1], why="the first schema is there")
        registry.gate.clear()
        embedded.produce("orders", b"\x00" + (2).to_bytes(4) + known[5:])
        wait_until(lambda: "/schemas/ids/2" in registry.asked, why="it is asked for")
        for _ in range(5):
            embedded.produce("orders", known)
        wait_until(lambda: got == [1] * 6, why="others are called meanwhile")
        registry.gate.set()
        wait_until(lambda: got == [1] * 7, why="and the one that waited after them")
        assert running.counters["charge"].dead_lettered == 0
    assert registry.asked.count("/schemas/ids/2") == 1
