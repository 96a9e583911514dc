"""Workers with delivery: at_most_once on the embedded broker."""

from __future__ import annotations

import time
from collections import Counter
from pathlib import Path
from threading import Event
from typing import Any

import pytest
import yaml

from tests import reading
from tests.at_most_once import in_children
from tests.commands import kafka_of
from tests.logged import lines_of
from tests.waiting import wait_until
from window_consumer import App, Record, RetryLater
from window_consumer.engine.counters import Counters
from window_consumer.kafka.embedded import EmbeddedBroker, NewRecord
from window_consumer.model.errors import RunError
from window_consumer.model.log_events import LogEvent

WAIT_S = 30.0
RECORDS = 60


class Shop:
    """A topic of numbered records, a worker that reads it, and a file of its calls."""

    def __init__(self, broker: EmbeddedBroker, folder: Path):
        self.broker = broker
        self.app = App("shop")
        self._file = folder / "workers.yaml"
        self.calls = folder / "calls"
        self.calls.touch()
        self.sections: dict[str, Any] = {}
        """Those of the configuration besides its worker."""

    def record_call(self, record: Record) -> None:
        with self.calls.open("a") as file:
            file.write(f"{record.text()}\n")

    def called(self) -> Counter[str]:
        return Counter(self.calls.read_text().split())

    def traced(self) -> Counter[tuple[str, str | None]]:
        """Count the steps of the trace, with their states."""
        events = reading.events(self.broker.read_all("wc.trace"))
        return Counter((each.step, each.status) for each in events)

    def configured(self, **keys: Any) -> Path:
        worker = {"group": "g", "topics": ["orders"], "delivery": "at_most_once", **keys}
        workers = {"charge": worker}
        content = {"kafka": kafka_of(self.broker), "workers": workers, **self.sections}
        self._file.write_text(yaml.safe_dump(content))
        return self._file

    def run(self, records: int, **keys: Any) -> Counters:
        """Run until so many calls have begun, and stop; return the counters."""
        file = self.configured(**keys)
        with self.app.start(file, start_timeout=WAIT_S) as self.running:
            wait_until(lambda: self.called().total() >= records, WAIT_S, "the calls")
        return self.running.counters["charge"]


@pytest.fixture
def shop(embedded: EmbeddedBroker, tmp_path: Path) -> Shop:
    embedded.create_topic("orders", 2)
    new = [NewRecord(b"%d" % at, b"%d" % (at % 7), []) for at in range(RECORDS)]
    embedded.fill("orders", new)
    return Shop(embedded, tmp_path)


ONCE_EACH = Counter({str(at): 1 for at in range(RECORDS)})


def is_bad(record: Record) -> bool:
    return int(record.text()) % 10 == 3


@pytest.mark.parametrize("ordering", ["unordered", "key", "partition"])
@pytest.mark.parametrize("form", ["threads", "coroutines"])
def test_each_record_is_called_once_whether_it_fails_or_not(
    shop: Shop, form: str, ordering: str
) -> None:
    def call(record: Record) -> None:
        shop.record_call(record)
        if is_bad(record):
            raise RetryLater(0.01) if record.text() == "3" else ValueError("bad")

    async def call_in_loop(record: Record) -> None:
        call(record)

    shop.app.handler(name="charge")(call_in_loop if form == "coroutines" else call)
    counters = shop.run(RECORDS, ordering=ordering)
    assert shop.called() == ONCE_EACH
    assert (counters.processed, counters.dropped, counters.lost) == (RECORDS - 6, 6, 0)
    assert counters.retried == counters.dead_lettered == 0


@pytest.mark.parametrize("ordering", ["unordered", "key"])
def test_a_batch_is_called_once(shop: Shop, ordering: str) -> None:
    def call(records: list[Record]) -> None:
        for record in records:
            shop.record_call(record)
        if any(map(is_bad, records)):
            raise ValueError("bad")

    shop.app.batch_handler(name="charge")(call)
    counters = shop.run(RECORDS, ordering=ordering, batch={"max_records": 4})
    assert shop.called() == ONCE_EACH
    assert counters.processed + counters.dropped == RECORDS
    assert counters.dropped >= 6


@pytest.mark.parametrize("ordering", ["unordered", "key"])
def test_children_call_once_even_if_they_die(
    shop: Shop, monkeypatch: pytest.MonkeyPatch, ordering: str
) -> None:
    monkeypatch.setenv(in_children.CALLS, str(shop.calls))
    monkeypatch.setenv(in_children.FATAL, "5")
    shop.app = in_children.app
    counters = shop.run(RECORDS, ordering=ordering, pool="processes", concurrency=2)
    assert shop.called() == ONCE_EACH
    assert (counters.processed, counters.dropped, counters.lost) == (RECORDS - 7, 7, 0)


def test_a_stop_runs_what_is_committed_and_another_run_calls_the_rest(shop: Shop) -> None:
    def call(record: Record) -> None:
        shop.record_call(record)
        time.sleep(0.02)  # so that the stop comes while records are left

    shop.app.handler(name="charge")(call)
    first = shop.run(10, concurrency=3)
    assert (first.lost, first.processed) == (0, shop.called().total())
    second = shop.run(RECORDS, concurrency=3)
    assert shop.called() == ONCE_EACH
    assert first.processed + second.processed == RECORDS


def test_what_does_not_end_in_time_is_lost_and_named(
    shop: Shop, caplog: pytest.LogCaptureFixture
) -> None:
    gate = Event()

    def call(record: Record) -> None:
        shop.record_call(record)
        gate.wait(WAIT_S)

    shop.app.handler(name="charge")(call)
    with pytest.raises(RunError):
        shop.run(3, concurrency=3, stop_timeout="0s")
    first = shop.running.counters["charge"]
    lines = lines_of(caplog, LogEvent.RECORDS_LOST)
    assert first.processed == 0
    assert 3 <= first.lost <= 6
    assert sum(vars(line)["records"] for line in lines) == first.lost
    gate.set()
    second = shop.run(RECORDS - first.lost + 3, concurrency=3)
    assert max(shop.called().values()) == 1
    assert first.lost + second.processed == RECORDS


def test_a_failure_is_counted_logged_and_traced(
    shop: Shop, caplog: pytest.LogCaptureFixture
) -> None:
    def call(record: Record) -> None:
        shop.record_call(record)
        if is_bad(record):
            raise ValueError("bad")

    shop.app.handler(name="charge")(call)
    shop.broker.create_topic("wc.trace", 1)
    shop.sections = {"trace": {"sample": "100%"}}
    counters = shop.run(RECORDS)
    assert counters.dropped == 6
    assert len(lines_of(caplog, LogEvent.CALL_FAILED)) >= 1  # many alike share a line
    spent = "RETRIES_EXHAUSTED"
    ends = {("processed", "ok"): 54, ("failed", spent): 6, ("dropped", spent): 6}
    assert {step: count for step, count in shop.traced().items() if step[0] != "received"} == ends


def test_no_topic_is_created_for_copies(shop: Shop) -> None:
    shop.app.handler(name="charge", when=None)(shop.record_call)
    shop.run(RECORDS, ttl="1d")
    assert shop.called() == ONCE_EACH
    plan = shop.app.plan(shop.configured(ttl="1d"))
    assert not plan.workers[0].writes_dead_letters
