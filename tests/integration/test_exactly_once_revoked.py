"""Exactly once on a real Kafka: ``revoke_timeout`` runs out while a transaction is pending."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from threading import Event

import pytest

from tests import reading
from tests.integration.conftest import ShopOn, protocol_settings
from tests.integration.shop import DEADLINE_S, Shop
from tests.kafka.fenced_broker import FencedBroker
from window_consumer import Produce, Record
from window_consumer.model.log_events import LogEvent
from window_consumer.runtime.running import Running

KEYS = 6
RECORDS = 60
FIRST, STUCK = range(KEYS), range(KEYS, 2 * KEYS)
"""The first record of each key, and the one behind it."""


class Owners:
    """Two members with ids of their own; the second one takes over from the first."""

    def __init__(self, shop: Shop, protocol: str, directory: Path):
        self.first = shop
        self.second = Shop(shop.client, shop.topic, shop.group, directory)
        self.invoices = f"{shop.group}.invoices"
        shop.create_topic(self.invoices, 2)
        self.first.behave = self.second.behave = self.bill
        self._kafka = protocol_settings(protocol)

    def bill(self, order: Record) -> Produce:
        return Produce(self.invoices, order.key, order.value)

    @contextmanager
    def running(self, shop: Shop, commit_interval: str) -> Iterator[Running]:
        name = "first" if shop is self.first else "second"
        with shop.running(
            kafka={**self._kafka, "group.instance.id": name, "transaction.timeout.ms": 60_000},
            delivery="exactly_once",
            ordering="key",
            concurrency=8,
            commit_interval=commit_interval,
            revoke_timeout="1s",
            retry={"on_failure": "block"},
        ) as running:
            yield running

    def until_begun(self) -> None:
        """Wait for the transaction with the start offsets: the next ends an interval later."""
        self.second.until_committed_at({0: 0, 1: 0})

    def judge(self) -> None:
        """Check what committed readers see: each result once, in the order of its key."""
        numbers, by_key = list[int](), defaultdict[bytes | None, list[int]](list)
        for each in reading.read_all(self.second.plain, self.invoices):
            numbers.append(int(each.value() or b""))
            by_key[each.key()].append(numbers[-1])
        assert all(each == sorted(each) for each in by_key.values()), by_key
        assert sorted(numbers) == list(range(RECORDS))

    def called(self, shop: Shop) -> set[int]:
        return {int(call.value or b"") for call in list(shop.calls)}


@pytest.fixture
def owners(shop: ShopOn, protocol: str, tmp_path: Path) -> Owners:
    (directory := tmp_path / "second").mkdir()
    return Owners(shop(2), protocol, directory)


def test_calls_that_outlast_a_revoke_run_again_and_what_was_finished_is_committed(
    owners: Owners,
) -> None:
    gate = Event()

    def hang(order: Record) -> Produce:
        if int(order.value or b"") in STUCK:
            gate.wait(DEADLINE_S)
        return owners.bill(order)

    first, second = owners.first, owners.second
    first.behave = hang
    with ExitStack() as both, ExitStack() as only_first:
        only_first.enter_context(owners.running(first, "20s"))
        owners.until_begun()
        second.produce(range(RECORDS), keys=KEYS)
        first.until(lambda: owners.called(first) >= set(STUCK), "one call of each key hangs")
        assert second.committed() == {0: 0, 1: 0}  # the results of the others are pending
        both.enter_context(owners.running(second, "100ms"))
        first.until_logged(LogEvent.CALL_OUTLIVED)
        second.until(lambda: bool(owners.called(second)), "it calls what hung")
        gate.set()
        everything = set(range(RECORDS))
        first.until(lambda: owners.called(first) | owners.called(second) == everything, "the rest")
        only_first.close()  # so it makes its last commit
        second.until_committed()
    assert owners.called(second) & set(STUCK)
    assert not owners.called(second) & set(FIRST)
    owners.judge()


def test_a_transaction_that_does_not_end_in_time_is_aborted_and_the_next_owner_repeats_it(
    owners: Owners,
) -> None:
    first, second = owners.first, owners.second
    with FencedBroker(first.client["bootstrap.servers"], owners.invoices) as broker:
        first.client = {"bootstrap.servers": broker.bootstrap}
        with owners.running(first, "100ms"):
            owners.until_begun()
            broker.takes_records.clear()
            second.produce(range(RECORDS), keys=KEYS)
            first.until(lambda: owners.called(first) >= set(FIRST), "the first calls")
            with owners.running(second, "100ms"):
                second.until(lambda: bool(owners.called(second)), "it calls what was aborted")
                assert second.committed() == {0: 0, 1: 0}
                broker.takes_records.set()
                first.until_logged(LogEvent.TRANSACTION_ABORTED)
                second.until_committed()
    owners.judge()
