"""The lifespan and the hooks of a FastStream application run around the workers."""

# ruff: noqa: ARG001 - FastStream calls functions by the names of their arguments

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Annotated, Any

import pytest
import yaml
from confluent_kafka import Producer
from faststream import Context, FastStream, confluent
from faststream.asgi import AsgiFastStream, make_ping_asgi

from tests.waiting import wait_until
from window_consumer import UsageError, current_record
from window_consumer.faststream import worker_of
from window_consumer.kafka.embedded import EmbeddedBroker
from window_consumer.testing import DONE, TestApp

BILL: dict[str, Any] = {"workers": {"bill": {}}}


@pytest.fixture
def broker() -> Any:
    return confluent.KafkaBroker("nowhere:9092", logger=None)


def test_hooks_run_in_faststreams_order_and_fill_the_context(broker: Any) -> None:
    seen: list[str] = []

    @asynccontextmanager
    async def lifespan() -> AsyncIterator[None]:
        seen.append("opened")
        service.context.set_global("pool", "pool")
        yield
        seen.append("closed")

    @broker.subscriber("orders", group_id="shop")
    async def bill(body: str, pool: Annotated[str, Context()]) -> None:
        seen.append(f"{body}-{pool}")

    service = FastStream(broker, logger=None, lifespan=lifespan)
    for kind in ("after_shutdown", "on_shutdown", "after_startup", "on_startup"):
        getattr(service, kind)(lambda kind=kind: seen.append(kind))
    with TestApp(worker_of(service), BILL) as app:
        assert app.send("orders", "ten").outcome is DONE
    assert seen == [
        *("opened", "on_startup", "after_startup"),
        "ten-pool",
        *("on_shutdown", "after_shutdown", "closed"),
    ]


def test_the_functions_of_all_workers_run_on_the_loop_of_the_hooks(
    broker: Any, embedded: EmbeddedBroker, tmp_path: Path
) -> None:
    loops: dict[str, Any] = {}
    records: list[Any] = []
    cleaned: list[str] = []

    @broker.subscriber("orders", group_id="bill", auto_offset_reset="earliest")
    async def bill(body: str) -> None:
        loops["bill"] = asyncio.get_running_loop()

    @broker.subscriber("orders", group_id="mail", auto_offset_reset="earliest")
    async def mail(body: str) -> None:
        loops["mail"] = asyncio.get_running_loop()
        records.append(current_record())
        try:
            await asyncio.sleep(60)
        finally:
            await asyncio.sleep(0)
            cleaned.append(body)

    service = FastStream(broker, logger=None)
    entries: list[Any] = []
    service.on_startup(lambda: entries.append("once"))

    @service.on_startup
    async def remember() -> None:
        loops["hooks"] = asyncio.get_running_loop()

    embedded.create_topic("orders", 1)
    file = tmp_path / "workers.yaml"
    kafka = {"bootstrap.servers": embedded.bootstrap}
    file.write_text(yaml.safe_dump({"kafka": kafka, "workers": {"bill": {}, "mail": {}}}))
    producer = Producer(kafka)
    producer.produce("orders", b"ten")
    assert producer.flush(30) == 0
    with worker_of(service).start(file, overrides=["workers.mail.stall.after=1s"]):
        wait_until(lambda: bool(cleaned), why="the cancelled call has cleaned up")
        wait_until(lambda: "bill" in loops)
    assert entries == ["once"]
    assert loops["bill"] is loops["mail"] is loops["hooks"]
    assert records[0].value == b"ten"


def test_a_hook_that_raises_ends_the_start(broker: Any) -> None:
    @broker.subscriber("orders", group_id="shop")
    async def bill(body: str) -> None: ...

    service = FastStream(broker, logger=None)

    @service.on_startup
    async def connect() -> None:
        raise OSError("no database")

    with pytest.raises(OSError, match="no database"), TestApp(worker_of(service), BILL):
        pass


def test_a_broker_whose_application_has_hooks_is_refused(broker: Any) -> None:
    @broker.subscriber("orders", group_id="shop")
    async def bill(body: str) -> None: ...

    service = FastStream(broker, logger=None)
    worker_of(broker)
    worker_of(service)
    service.on_startup(lambda: None)
    with pytest.raises(UsageError, match="on_startup"):
        worker_of(broker)


def test_an_application_that_has_more_than_one_broker_is_refused(broker: Any) -> None:
    broker.subscriber("orders", group_id="shop")(print)
    with pytest.raises(UsageError, match="2"):
        worker_of(FastStream(broker, confluent.KafkaBroker("nowhere:9092"), logger=None))


def test_routes_for_http_are_refused(broker: Any) -> None:
    broker.subscriber("orders", group_id="shop")(print)
    worker_of(AsgiFastStream(broker, logger=None))
    with pytest.raises(UsageError, match="asgi_routes"):
        worker_of(
            AsgiFastStream(broker, logger=None, asgi_routes=[("/live", make_ping_asgi(broker))])
        )
