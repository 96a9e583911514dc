"""Logs whose offsets have holes: compaction, and transactions that committed or aborted."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import count

from confluent_kafka import Producer

from tests import reading
from tests.integration.conftest import ShopOn
from tests.integration.shop import Shop, fails_on
from window_consumer.kafka.embedded import NewRecord
from window_consumer.testing.guarantees import NoDuplicates

COMPACTED = {
    "cleanup.policy": "compact",
    "segment.bytes": str(1024 * 1024),
    "segment.ms": "100",
    "min.cleanable.dirty.ratio": "0.01",
    "min.compaction.lag.ms": "0",
    "max.compaction.lag.ms": "100",
}


def offsets_in(shop: Shop) -> list[int]:
    return [int(record.offset() or 0) for record in reading.read_all(shop.plain, shop.topic)]


def compacted(shop: Shop) -> list[int]:
    """Write 100 records of which compaction leaves 16; return the offsets that are left."""
    shop.write(NewRecord(b"%d" % n, b"k%d" % (n % 7 if n % 10 else n)) for n in range(100))
    keys = {f"k{n % 7 if n % 10 else n}" for n in range(100)}
    closing = count(1)

    def is_compacted() -> bool:
        # A segment is closed, and can be compacted, only when a later record comes.
        number = next(closing)
        shop.write([NewRecord(b"another", b"closes %d" % number)])
        return len(offsets_in(shop)) == len(keys) + number

    shop.until(is_compacted, "compaction")
    shop.produced.clear()
    return offsets_in(shop)


def transactions(shop: Shop, ends: Sequence[str]) -> None:
    """Write ten records in each of some transactions; return when their markers are there, too."""
    before = shop.ends()[0]
    producer = Producer({**shop.plain, "transactional.id": shop.group})
    producer.init_transactions(30)
    for end in ends:
        producer.begin_transaction()
        for number in range(10):
            producer.produce(shop.topic, key=f"k{number % 3}", value=end)
        producer.flush(30)
        if end == "committed":
            producer.commit_transaction(30)
        else:
            producer.abort_transaction(30)
    shop.until(lambda: shop.ends()[0] == before + 11 * len(ends), "the markers are written")


def test_what_compaction_left_is_handled_once_and_committed_to_the_end(shop: ShopOn) -> None:
    orders = shop(1, COMPACTED)
    left = compacted(orders)
    with orders.running(ordering="key", retry={"on_failure": "overtake"}):
        orders.until_committed()
    assert [offset for _, offset in orders.places()] == left
    assert orders.violations(NoDuplicates()) == []


def test_finished_ranges_over_compacted_offsets_are_not_run_again(shop: ShopOn) -> None:
    orders = shop(1, COMPACTED)
    left = compacted(orders)
    first = reading.read_all(orders.plain, orders.topic)[0].value() or b""
    orders.behave = fails_on(first)
    with orders.running(retry={"backoff": "60s..60s"}):
        orders.until(lambda: {*orders.uncovered()} & {*left} == {left[0]}, "the others are done")
    called = len(orders.calls)
    orders.behave = lambda _: None
    with orders.running():
        orders.until_committed()
    assert orders.places(since=called) == [(0, left[0])]


def test_records_of_aborted_transactions_are_not_seen(shop: ShopOn) -> None:
    orders = shop(1)
    transactions(orders, ["committed", "aborted", "committed"])
    with orders.running(ordering="key", retry={"on_failure": "overtake"}):
        orders.until_committed()
    assert orders.ends() == {0: 33}
    assert [offset for _, offset in orders.places()] == [*range(10), *range(22, 32)]
    assert orders.violations(NoDuplicates()) == []


def test_an_aborted_transaction_at_the_end_is_committed_over(shop: ShopOn) -> None:
    """Nothing is ever delivered of it: only the client's position tells that it was read."""
    orders = shop(1)
    with orders.running():
        orders.until_reading()
        transactions(orders, ["committed", "aborted"])
        orders.until_committed()
    assert orders.committed() == {0: 22}
    assert [offset for _, offset in orders.places()] == list(range(10))


def test_a_log_of_nothing_but_an_aborted_transaction_is_committed(shop: ShopOn) -> None:
    orders = shop(1)
    transactions(orders, ["aborted"])
    with orders.running():
        orders.until_committed()
    assert orders.committed() == {0: 11}
    assert orders.calls == []


def test_records_of_an_open_transaction_wait_for_its_end(shop: ShopOn) -> None:
    orders = shop(1)
    orders.produce(range(3))
    producer = Producer({**orders.plain, "transactional.id": orders.group})
    producer.init_transactions(30)
    producer.begin_transaction()
    producer.produce(orders.topic, value="open")
    producer.flush(30)
    orders.produce(range(4, 6))
    with orders.running():
        orders.until_called(3)
        orders.until(lambda: orders.committed() == {0: 3}, "committed up to the transaction")
        assert orders.places() == [(0, 0), (0, 1), (0, 2)]
        producer.commit_transaction(30)
        orders.until(lambda: orders.ends() == {0: 7}, "the marker is written")
        orders.until_committed()
    assert [offset for _, offset in orders.places()] == list(range(6))
