"""Results on a real Kafka: what only its brokers refuse."""

from __future__ import annotations

from tests import reading
from tests.integration.conftest import ShopOn
from window_consumer import Produce, Record
from window_consumer.kafka.embedded import NewRecord
from window_consumer.model import headers as names

RECORDS = 160
LARGE = b"large"


def test_where_a_batch_is_too_large_only_results_that_are_too_large_are_refused(
    shop: ShopOn,
) -> None:
    """Brokers compare whole batches with max.message.bytes, and refuse all records in one."""
    orders = shop(1)
    invoices = f"{orders.group}.invoices"
    orders.create_topic(invoices, 2, {"max.message.bytes": "3000"})

    def bill(order: Record) -> Produce:
        value = b"x" * 5_000 if order.value == LARGE else order.value
        return Produce(invoices, order.key, value)

    orders.behave = bill
    orders.write(
        NewRecord(LARGE if number == 77 else b"%d" % number, b"k%d" % (number % 20))
        for number in range(RECORDS)
    )
    with orders.running(retry={"attempts": 1}) as running:
        orders.until_committed()
        counters = running.counters["work"]
        assert (counters.processed, counters.dead_lettered) == (RECORDS - 1, 1)
    produced = reading.read_all(orders.plain, invoices)
    found = {int(message.value()) for message in produced}
    assert found == set(range(RECORDS)) - {77}
    (letter,) = orders.dead_letters()
    assert letter.value() == LARGE
    said = dict(letter.headers())[names.ERROR_MESSAGE]
    assert f" {invoices}, ".encode() in said
    assert b"MSG_SIZE_TOO_LARGE" in said


def test_results_of_a_key_follow_its_records_and_nothing_is_committed_before_them(
    shop: ShopOn,
) -> None:
    orders = shop(2)
    invoices = f"{orders.group}.invoices"
    orders.create_topic(invoices, 3)
    orders.behave = lambda order: [
        Produce(invoices, order.key, order.value, headers={"part": str(part)}) for part in (1, 2)
    ]
    orders.produce(range(2_000), keys=50)
    with orders.running(ordering="key", retry={"on_failure": "overtake"}):
        orders.until_committed()
    parts: dict[bytes, list[tuple[int, bytes]]] = {}
    for message in reading.read_all(orders.plain, invoices):
        part = dict(message.headers())["part"]
        parts.setdefault(message.key(), []).append((int(message.value()), part))
    assert sum(map(len, parts.values())) == 4_000
    assert all(each == sorted(each) for each in parts.values())
    assert orders.violations() == []
