"""A broadcast worker in the test kit: what it reads, when it is ready, what failures do."""

from __future__ import annotations

from typing import Any

import pytest

from window_consumer import App, Record
from window_consumer.model.errors import WorkerStoppedError
from window_consumer.testing import DROPPED, TestApp


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
