"""Slots that are leases, in a worker that knows nothing of them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from threading import Thread
from typing import Any

import pytest
import yaml

from tests.commands import kafka_of
from tests.integration.members import wait_until
from tests.runtime.lease_pool import Lease, LeasePool, kind_of
from window_consumer import App, Record
from window_consumer.engine.guards.breaker_state import BreakerState
from window_consumer.engine.windows_snapshot import WindowsSnapshot
from window_consumer.kafka.embedded import EmbeddedBroker
from window_consumer.runtime.pools.registry import KINDS
from window_consumer.runtime.running import Running

WAIT_S = 60.0
LONG_S = 600.0
SHORT_S = 0.2


class Leasing:
    """A worker that runs, and its pool."""

    def __init__(self, running: Running, pool: LeasePool, broker: EmbeddedBroker):
        self.running = running
        self.pool = pool
        self.broker = broker

    def take(self, lease_s: float = LONG_S) -> Lease:
        taken = self.pool.take(lease_s, WAIT_S)
        assert taken is not None
        return taken

    def in_any_thread(self, *receipts: str) -> None:
        """End leases, each on a thread of its own."""
        threads = [Thread(target=self.pool.finish, args=(each,)) for each in receipts]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(WAIT_S)

    @property
    def windows(self) -> WindowsSnapshot:
        windows = self.running.snapshots(WAIT_S)["charge"]
        assert windows is not None
        return windows

    def wait_for(self, **counts: int) -> None:
        """Wait until counters have these values."""
        counters = self.running.counters["charge"]
        for name, count in counts.items():
            wait_until(lambda: getattr(counters, name) == count, WAIT_S, f"{count} {name}")  # noqa: B023 - called at once


@pytest.fixture
def start(embedded: EmbeddedBroker, tmp_path: Path) -> Iterator[Any]:
    """``start(records, **keys)``: a worker over a topic that gets so many records."""
    pools: list[LeasePool] = []
    kind = kind_of(pools)
    KINDS[kind.name] = kind
    running: list[Running] = []

    def start(records: int, **keys: Any) -> Leasing:
        app = App("shop")

        @app.handler("orders", group="shop")
        def charge(record: Record) -> None:
            raise AssertionError(f"{record.offset} is called here")

        if not running:
            embedded.create_topic("orders", 1)
        for number in range(records):
            embedded.produce("orders", str(number).encode(), partition=0)
        file = tmp_path / "workers.yaml"
        worker = {"pool": kind.name, "concurrency": 8, "stop_timeout": "0.1s", **keys}
        file.write_text(
            yaml.safe_dump({"kafka": kafka_of(embedded), "workers": {"charge": worker}})
        )
        running.append(app.start(file, start_timeout=WAIT_S))
        return Leasing(running[-1], pools[-1], embedded)

    yield start
    for each in running:
        each.stop()
        each.wait()
    del KINDS[kind.name]


def test_a_record_waits_until_somebody_asks_and_is_done_when_its_receipt_comes_back(
    start: Any,
) -> None:
    shop = start(30)
    wait_until(lambda: shop.windows.partitions, WAIT_S, "the worker has its partition")
    assert (shop.windows.queued, shop.windows.counters.processed) == (0, 0)
    taken = [shop.take() for _ in range(8)]
    assert [each.value for each in taken] == [str(number).encode() for number in range(8)]
    assert shop.pool.take(LONG_S, SHORT_S) is None  # no more than concurrency at once
    shop.in_any_thread(*(each.receipt for each in reversed(taken)))
    shop.wait_for(processed=8)
    wait_until(lambda: shop.windows.partitions[0].first_open == 8, WAIT_S, "all are done")
    assert shop.take().value == b"8"


def test_a_lease_that_is_renewed_lasts_and_one_that_is_not_gives_its_record_to_the_next(
    start: Any,
) -> None:
    shop = start(2, retry={"backoff": "1ms..1ms"})
    kept, left = shop.take(LONG_S), shop.take(LONG_S)
    assert shop.pool.renew(kept.receipt, LONG_S)
    assert shop.pool.renew(left.receipt, SHORT_S)
    again = shop.take()
    assert (again.value, again.attempt) == (left.value, 2)
    shop.wait_for(late=0, retried=1)
    assert not shop.pool.finish(left.receipt)
    assert not shop.pool.renew(left.receipt, LONG_S)
    assert [shop.pool.finish(each.receipt) for each in (kept, again)] == [True, True]
    shop.wait_for(processed=2, retried=1)
    assert not shop.pool.finish(again.receipt)


def test_a_lease_that_ends_spends_an_attempt_and_is_no_evidence_for_the_breaker(start: Any) -> None:
    breaker = {"failures": "1%", "min_calls": 2, "window": "10m"}
    retry = {"attempts": 2, "backoff": "1ms..1ms", "levels": []}
    shop = start(4, retry=retry, breaker=breaker)
    for _ in range(2 * 4):
        shop.take(0.0)
    shop.wait_for(dead_lettered=4)
    breaker_now = shop.windows.breaker
    assert (breaker_now.state, breaker_now.calls) == (BreakerState.CLOSED, 0)
    assert shop.windows.counters.dead_by == {"RETRIES_EXHAUSTED": 4}
    shop.broker.produce("orders", b"4", partition=0)
    # What a client says of its record is evidence.
    assert shop.pool.finish(shop.take().receipt, ValueError("no"))
    wait_until(lambda: shop.windows.breaker.failed == 1, WAIT_S, "a failure is counted")


def test_leases_that_last_at_a_stop_end_with_it_and_their_records_come_again(start: Any) -> None:
    shop = start(3)
    done, open_ = shop.take(), shop.take()
    assert shop.pool.finish(done.receipt)
    shop.wait_for(processed=1)
    shop.running.stop()
    shop.running.wait()
    assert not shop.pool.finish(open_.receipt)
    assert not shop.running.left_behind
    (worker,) = shop.running.workers
    assert (worker.loop.unfinished, worker.loop.outlived) == (2, 0)
    again = start(0)
    assert [again.take().value for _ in range(2)] == [b"1", b"2"]
