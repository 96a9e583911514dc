"""Slots that are leases, in a worker that knows nothing of them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from threading import Event, Thread
from typing import Any

import pytest
import yaml
from attrs import evolve

from tests.commands import kafka_of
from tests.waiting import wait_until
from window_consumer import App, Record
from window_consumer.engine.guards.breaker_state import BreakerState
from window_consumer.engine.windows_snapshot import WindowsSnapshot
from window_consumer.kafka.embedded import EmbeddedBroker
from window_consumer.runtime.pools.lease_pool import LEASES
from window_consumer.runtime.pools.leases import Lease, Leases
from window_consumer.runtime.pools.registry import KINDS
from window_consumer.runtime.running import Running

WAIT_S = 60.0
LONG_S = 600.0
SHORT_S = 0.2


class Leasing:
    """A worker that runs, and its leases."""

    def __init__(self, running: Running, broker: EmbeddedBroker):
        self.running = running
        self.broker = broker

    @property
    def leases(self) -> Leases:
        (worker,) = self.running.workers
        assert worker.leases is not None
        return worker.leases

    def ask(self, most: int, lease_s: float = LONG_S, wait_s: float = WAIT_S) -> list[Lease]:
        """Take up to so many records as soon as one is there."""
        ready = Event()
        request = self.leases.ask(most, ready.set)
        ready.wait(wait_s)
        return self.leases.take(request, lease_s)

    def take(self, lease_s: float = LONG_S) -> Lease:
        (taken,) = self.ask(1, lease_s)
        return taken

    def in_any_thread(self, *numbers: int) -> None:
        """End leases, each on a thread of its own."""
        threads = [Thread(target=self.leases.finish, args=(each,)) for each in numbers]
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
    kind = evolve(LEASES, name="leases of a test", runs_functions=True)
    KINDS[kind.name] = kind
    running: list[Running] = []

    def start(records: int, **keys: Any) -> Leasing:
        app = App("shop")

        @app.handler("orders", group="shop")
        def charge(_record: Record) -> None: ...

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
        return Leasing(running[-1], embedded)

    yield start
    for each in running:
        each.stop()
        each.wait()
    del KINDS[kind.name]


def value_of(lease: Lease) -> bytes:
    value: bytes = lease.message.value()
    return value


def test_a_record_waits_until_somebody_asks_and_is_done_when_its_lease_is_ended(start: Any) -> None:
    shop = start(30)
    wait_until(lambda: shop.windows.partitions, WAIT_S, "the worker has its partition")
    assert (shop.windows.queued, shop.windows.counters.processed) == (0, 0)
    taken = [shop.take() for _ in range(8)]
    assert [value_of(each) for each in taken] == [str(number).encode() for number in range(8)]
    assert shop.ask(1, wait_s=SHORT_S) == []  # no more than concurrency at once
    shop.in_any_thread(*(each.number for each in reversed(taken)))
    shop.wait_for(processed=8)
    wait_until(lambda: shop.windows.partitions[0].first_open == 8, WAIT_S, "all are done")
    assert value_of(shop.take()) == b"8"


def test_a_lease_that_is_renewed_lasts_and_one_that_is_not_gives_its_record_to_the_next(
    start: Any,
) -> None:
    shop = start(2, retry={"backoff": "10m..10m"})  # the next one need not wait after a lease
    kept, left = shop.take(LONG_S), shop.take(LONG_S)
    assert all((each.lease_left_s or 0) > LONG_S / 2 for each in shop.windows.calls)
    assert shop.leases.renew(kept.number, LONG_S)
    assert shop.leases.renew(left.number, SHORT_S)
    again = shop.take()
    assert (value_of(again), again.slice_.call.attempt) == (value_of(left), 2)
    shop.wait_for(late=0, retried=1)
    assert not shop.leases.finish(left.number)
    assert not shop.leases.renew(left.number, LONG_S)
    assert [shop.leases.finish(each.number) for each in (kept, again)] == [True, True]
    shop.wait_for(processed=2, retried=1)
    assert not shop.leases.finish(again.number)


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
    assert shop.leases.finish(shop.take().number, ValueError("no"))
    wait_until(lambda: shop.windows.breaker.failed == 1, WAIT_S, "a failure is counted")


def test_leases_that_last_at_a_stop_end_with_it_and_their_records_come_again(start: Any) -> None:
    shop = start(3)
    done, open_ = shop.take(), shop.take()
    assert shop.leases.finish(done.number)
    shop.wait_for(processed=1)
    shop.running.stop()
    shop.running.wait()
    assert not shop.leases.finish(open_.number)
    assert not shop.running.left_behind
    (worker,) = shop.running.workers
    assert (worker.loop.unfinished, worker.loop.outlived) == (2, 0)
    again = start(0)
    assert [value_of(again.take()) for _ in range(2)] == [b"1", b"2"]


def test_clients_get_what_is_ready_together_and_what_nobody_takes_waits_in_its_place(
    start: Any,
) -> None:
    shop = start(12)
    wait_until(lambda: shop.windows.partitions, WAIT_S, "the worker has its partition")
    ready = Event()
    gone = shop.leases.ask(8, ready.set)
    assert ready.wait(WAIT_S)
    wait_until(lambda: shop.windows.queued == 8, WAIT_S, "all are ready")
    shop.leases.withdraw(gone)
    wait_until(lambda: shop.windows.queued == 0, WAIT_S, "none is ready")
    assert shop.windows.running == shop.leases.in_flight == shop.windows.asking == 0
    values = [value_of(each) for each in (shop.take(), shop.take())]
    assert values == [b"0", b"1"]
