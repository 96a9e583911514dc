"""A broadcast worker in the test kit: what it reads, when it is ready, what failures do."""

from __future__ import annotations

from typing import Any

import pytest

from window_consumer import App, Record
from window_consumer.model.errors import WorkerStoppedError
from window_consumer.testing import DROPPED, EXPIRED, SKIPPED, TestApp


class Cache:
    """An application whose handler fills a mapping; a value of ``bad`` fails."""

    def __init__(self) -> None:
        self.app = App("prices")
        self.prices: dict[bytes | None, bytes | None] = {}
        self.calls: list[bytes | None] = []
        self.app.handler("prices", name="fill")(self.fill)

    def fill(self, record: Record) -> None:
        self.calls.append(record.value)
        if record.value == b"bad":
            raise ValueError
        self.prices[record.key] = record.value

    def running(self, *, partitions: int = 2, **worker: Any) -> TestApp:
        config = {"workers": {"fill": {"delivery": "broadcast", **worker}}}
        return TestApp(self.app, config, partitions=partitions)


@pytest.fixture
def cache() -> Cache:
    return Cache()


def test_everything_is_handled_and_nothing_committed(cache: Cache) -> None:
    with cache.running() as kit:
        kit.send_many("prices", [b"1", b"2", b"3"])
    assert sorted(map(str, cache.calls)) == ["b'1'", "b'2'", "b'3'"]
    assert [group.applied for group in kit.broker.groups.values()] == [[]]


@pytest.mark.parametrize(
    ("begin", "expected"),
    [("latest", [b"4"]), ("earliest", [b"1", b"2", b"3", b"4"]), ("15m", [b"2", b"3", b"4"])],
)
def test_a_process_that_starts_again_begins_by_the_rule(
    cache: Cache, begin: str, expected: list[bytes]
) -> None:
    with cache.running(partitions=1, broadcast={"from": begin}) as kit:
        kit.send("prices", b"1")
        kit.advance("10m")
        kit.send_many("prices", [b"2", b"3"])
        kit.advance("6m")
        cache.calls.clear()
        kit.crash()
        kit.send("prices", b"4")
    assert cache.calls == expected


def test_added_partitions_begin_at_their_first_record(cache: Cache) -> None:
    with cache.running(partitions=1) as kit:
        kit.broker.add_partitions("prices", 2)
        kit.send("prices", b"1", partition=1)
    assert cache.calls == [b"1"]


def test_a_record_without_attempts_left_stops_the_worker(cache: Cache) -> None:
    with cache.running(retry={"attempts": 2, "backoff": "1s..1s"}) as kit:
        kit.send("prices", b"bad")
        with pytest.raises(WorkerStoppedError):
            kit.advance("2s")
    assert cache.calls == [b"bad", b"bad"]


def test_or_it_is_dropped_and_counted(cache: Cache) -> None:
    broadcast = {"when_spent": "drop"}
    with cache.running(broadcast=broadcast, retry={"attempts": 1}, ordering="key") as kit:
        sent = kit.send("prices", b"bad", key="a")
        kit.send("prices", b"good", key="a")
    assert sent.outcome is DROPPED
    assert cache.prices == {b"a": b"good"}


def test_records_that_retention_deleted_are_passed_over(cache: Cache) -> None:
    with cache.running(partitions=1) as kit:
        kit.send_many("prices", [b"1", b"2", b"3"], run=False)
        kit.broker.log("prices").delete_before(2)
        kit.run_until_idle()
    assert cache.calls == [b"3"]


def test_a_rebalance_of_others_changes_nothing(cache: Cache) -> None:
    with cache.running() as kit:
        kit.send("prices", b"1")
        kit.rebalance()
        kit.rebalance(lost=True)
        kit.send("prices", b"2")
    assert cache.calls == [b"1", b"2"]


def test_an_expired_record_is_dropped(cache: Cache) -> None:
    with cache.running(ttl="1m") as kit:
        sent = kit.send("prices", b"old", timestamp=kit.clock.wall_ms() - 3_600_000)
    assert sent.outcome is EXPIRED
    assert cache.calls == []


@pytest.mark.parametrize("when_spent", ["stop", "drop"])
def test_a_record_for_no_handler_is_what_when_spent_says(when_spent: str) -> None:
    app = App("prices")
    handled: list[Record] = []

    @app.handler("prices")
    def fill(record: Record) -> None:
        handled.append(record)

    routes = {"fill": "header('kind') == 'price'"}
    worker = {"delivery": "broadcast", "broadcast": {"when_spent": when_spent}, "routes": routes}
    kit = TestApp(app, {"workers": {"fill": worker}})
    if when_spent == "drop":
        with kit:
            sent = kit.send("prices", b"1")
        assert sent.outcome is SKIPPED
    else:
        with kit, pytest.raises(WorkerStoppedError):
            kit.send("prices", b"1")
    assert handled == []


def test_batches_and_coroutines_get_everything() -> None:
    app = App("prices")
    batches: list[int] = []
    handled: list[bytes | None] = []

    @app.batch_handler("prices")
    def fill(records: list[Record]) -> None:
        batches.append(len(records))

    @app.handler("prices")
    async def mirror(record: Record) -> None:
        handled.append(record.value)

    worker = {"delivery": "broadcast"}
    with TestApp(app, {"workers": {"fill": worker, "mirror": worker}}) as kit:
        kit.send_many("prices", [b"1", b"2", b"3"])
        kit.advance("1s")
    assert sum(batches) == 3
    assert sorted(map(str, handled)) == ["b'1'", "b'2'", "b'3'"]


def test_a_topic_that_appears_is_read_from_its_beginning() -> None:
    app = App("prices")
    handled: list[bytes | None] = []

    @app.handler()
    def fill(record: Record) -> None:
        handled.append(record.value)

    worker = {"delivery": "broadcast", "patterns": ["^prices"]}
    with TestApp(app, {"workers": {"fill": worker}}, topics={"prices.eu": 1}) as kit:
        kit.broker.create_topic("prices.us", 1)
        kit.broker.produce("prices.us", 0, None, b"first")
        kit.create_topic("prices.asia", 1)
        kit.send("prices.us", b"second")
    assert handled == [b"first", b"second"]
