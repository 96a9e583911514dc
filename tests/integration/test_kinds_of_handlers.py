"""Coroutines and batches on a real Kafka: calls fail, members come and go, nothing is lost."""

from __future__ import annotations

import asyncio
import zlib
from collections.abc import Callable
from contextlib import ExitStack
from typing import Any

import pytest
from attrs import define

from tests.conftest import MakeTopic
from tests.integration.conftest import protocol_settings
from tests.integration.shop import Shop
from window_consumer import App, PartialFailure, Record
from window_consumer.model.log_events import LogEvent
from window_consumer.testing.real_kafka import RealKafka

KEYS = 40
WORKER: dict[str, Any] = {
    "ordering": "key",
    "concurrency": 200,
    "retry": {"attempts": 3, "backoff": "5ms..20ms", "on_failure": "block"},
    "kafka": {"consumer": protocol_settings("classic")},
}


def fails_once(record: Record) -> None:
    """Fail at the first attempt, for one record in ten."""
    if record.attempt == 1 and zlib.crc32(record.text().encode()) % 10 == 0:
        raise ValueError(record.text())


@define(eq=False)
class AsyncShop(Shop):
    """Its handler is a coroutine function."""

    def _app(self) -> App:
        app = App("tests", version="1")
        app.handler(name="work")(self._handle_later)
        return app

    async def _handle_later(self, record: Record) -> None:
        with self.noted(record):
            await asyncio.sleep(0.002)
            self.behave(record)


@define(eq=False)
class BatchShop(Shop):
    """Its handler takes lists, and names the records that failed.

    It leaves those alone that are behind a failed one of their key: they have to come again.
    """

    def _app(self) -> App:
        app = App("tests", version="1")
        app.batch_handler(name="work", max_records=50)(self._handle_all)
        return app

    def _handle_all(self, records: list[Record]) -> None:
        failed: dict[bytes | None, Record] = {}
        for record in records:
            try:
                if record.key not in failed:
                    self._handle(record)
            except ValueError:
                failed[record.key] = record
        if failed:
            raise PartialFailure(failed.values())


@pytest.mark.parametrize("kind", [AsyncShop, BatchShop])
def test_failures_and_members_that_come_and_go_lose_and_reorder_nothing(
    kind: Callable[..., Shop],
    kafka: RealKafka,
    make_topic: MakeTopic,
    unique_name: Callable[[str], str],
    tmp_path: Any,
) -> None:
    client = {"bootstrap.servers": kafka.bootstrap}
    shop = kind(client, make_topic("orders", 4), unique_name("shop"), tmp_path, fails_once)
    shop.produce(range(1_000), keys=KEYS)
    with ExitStack() as second:
        with shop.running(**WORKER):
            shop.until_called(100)
            second.enter_context(shop.running(**WORKER))
            shop.until_logged(LogEvent.PARTITIONS_ASSIGNED, partitions=2, times=2)
            shop.produce(range(1_000, 3_000), keys=KEYS)
            shop.until_called(1_500)
        shop.until_committed()
    assert shop.violations() == []
    assert {call.attempt for call in shop.calls} == {1, 2}
