"""At most once on a real Kafka: members come and go, and each record is called once."""

from __future__ import annotations

import time
from collections import Counter
from typing import Any

import pytest

from tests.integration.conftest import PROTOCOLS, ShopOn, protocol_settings
from window_consumer import Record
from window_consumer.model.log_events import LogEvent

RECORDS = 900


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_members_that_come_and_go_call_each_record_once(shop: ShopOn, protocol: str) -> None:
    orders = shop(4)

    def behave(record: Record) -> None:
        time.sleep(0.005)
        if int(record.value or b"") % 100 == 1:
            raise ValueError("it fails")

    orders.behave = behave
    orders.produce(range(RECORDS), keys=30)
    settings: dict[str, Any] = {
        "kafka": protocol_settings(protocol),
        "delivery": "at_most_once",
        "ordering": "key",
        "concurrency": 4,
        "commit_interval": None,
    }
    with orders.running(**settings) as first:
        orders.until_called(50)
        with orders.running(**settings) as second:
            orders.until(lambda: second.counters["work"].processed > 20, "the second has some")
        orders.until_committed()
    both = [each.counters["work"] for each in (first, second)]
    assert Counter(call.place for call in orders.calls) == Counter(
        {(each.partition, each.offset): 1 for each in orders.produced}
    )
    assert sum(each.processed + each.dropped for each in both) == RECORDS
    assert sum(each.lost for each in both) == 0
    assert orders.log.of(LogEvent.RECORDS_LOST) == []
