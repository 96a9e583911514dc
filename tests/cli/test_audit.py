"""What a worker counts of the records that it consumes and writes, and where the counts go."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from time import monotonic

import pytest

from tests.cli import auditing
from tests.commands import Commands, kafka_of
from window_consumer.audit.balance import BalanceVerdict, balance, effective
from window_consumer.audit.count import AuditCount, CountTier, decode
from window_consumer.kafka.embedded import EmbeddedBroker

SHOP = """
from window_consumer import App, Produce, Record, Skip

app = App("shop")


@app.handler("orders", group="shop", retry={"attempts": 1, "levels": ["100ms"]})
def charge(order: Record):
    text = order.text()
    if text == "dead" or (text == "late" and order.attempt == 1):
        raise ValueError(text)
    if text == "other":
        raise Skip
    if text == "invoice":
        return Produce("invoices", value=b"paid")
"""


@pytest.fixture
def shop(commands: Commands, embedded: EmbeddedBroker) -> Commands:
    for topic in ("orders", "shop.orders.retry.100ms", "shop.orders.dlq", "invoices"):
        embedded.create_topic(topic, 2)
    commands.application(SHOP)
    commands.configure(
        {
            "kafka": kafka_of(embedded),
            "workers": {"charge": {}},
            "audit": {"enabled": True, "directory": "audit", "bucket": "1h", "ids": True},
        }
    )
    return commands


def counts_in(embedded: EmbeddedBroker) -> list[AuditCount]:
    """Read the topic."""
    found: list[AuditCount] = []
    for message in embedded.read_all("wc.audit"):
        counts = decode(message.value() or b"")
        assert {count.key for count in counts} == {(message.key() or b"").decode()}
        found += counts
    return found


def wait_for_records(embedded: EmbeddedBroker, topic: str, count: int) -> None:
    deadline = monotonic() + 60
    while sum(embedded.end_offsets(topic).values()) < count:
        assert monotonic() < deadline, f"{topic} has not got {count} records"


def test_everything_that_comes_and_goes_is_counted_and_shipped(
    shop: Commands, embedded: EmbeddedBroker, tmp_path: Path
) -> None:
    for text in ("good", "good", "late", "dead", "other", "invoice"):
        embedded.produce("orders", text.encode())
    command = shop.start("run", "shop:app")
    wait_for_records(embedded, "shop.orders.dlq", 1)
    wait_for_records(embedded, "invoices", 1)
    wait_for_records(embedded, "shop.orders.retry.100ms", 2)
    assert command.stop().code == 0
    counts = counts_in(embedded)
    tiers: Counter[tuple[str, str]] = Counter()
    for count in effective(counts).counts:
        tiers[count.topic, count.tier] += count.count
    assert {key: count for key, count in tiers.items() if count} == {
        ("orders", "finished"): 3,
        ("orders", "filtered"): 1,
        ("orders", "retried"): 2,
        ("shop.orders.retry.100ms", "produced"): 2,
        ("shop.orders.retry.100ms", "finished"): 1,
        ("shop.orders.retry.100ms", "dead_lettered"): 1,
        ("shop.orders.dlq", "produced"): 1,
        ("invoices", "produced"): 1,
    }
    retried = [b for b in balance(counts) if b.topic == "shop.orders.retry.100ms"]
    assert [each.verdict for each in retried] == [BalanceVerdict.BALANCED]
    assert sum(count.final for count in counts) == 2
    assert not list((tmp_path / "audit").iterdir())


def test_the_books_balance_to_the_record_when_worker_and_producer_are_killed(
    embedded: EmbeddedBroker, tmp_path: Path
) -> None:
    for topic in (auditing.ORDERS, auditing.RETRY, auditing.DLQ, auditing.COUNTS):
        embedded.create_topic(topic, 2)
    shop = auditing.Shop(embedded.bootstrap, tmp_path, 2_000, per_s=2_000)
    books = shop.run(kills=3, seed=1)
    assert not list(books.problems()), books.sums()
    assert books.ends[auditing.ORDERS] >= 2_000
    unknown = [
        each for each in books.counts if each.tier is CountTier.UNKNOWN and each.topic == "orders"
    ]
    assert all(len(each.ids) == each.count for each in unknown)
    assert not list((tmp_path / "audit").iterdir())
