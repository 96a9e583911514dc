"""A delay service whose records wait in wheels, on the embedded broker."""

from __future__ import annotations

import json
import signal
import time
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka.admin import AdminClient, NewTopic

from tests import topics
from tests.commands import DEADLINE_S
from tests.delay.service import DelayService
from tests.waiting import wait_until
from window_consumer.kafka.embedded import ApiKey, EmbeddedBroker
from window_consumer.model.log_events import LogEvent

PARTITIONS = 2


def now_ms() -> int:
    return int(time.time() * 1000)


def _are_covered(folder: Path) -> bool:
    """Return whether the files of both partitions cover their records."""
    slots = {each.parent for each in folder.glob("*/*.slot")}
    positions = [each / "position.json" for each in slots]
    return len(slots) == PARTITIONS and all(
        each.exists() and json.loads(each.read_text())["taken"] for each in positions
    )


@pytest.fixture
def wheel(service: DelayService, tmp_path: Path) -> DelayService:
    service.configure(store="wheel", directory=str(tmp_path / "wheel"))
    return service


def wait_for_files(folder: Path) -> None:
    """Wait until the records that wait are in files that a later process may use."""
    wait_until(lambda: _are_covered(folder), why="files of both partitions")


def test_records_wait_in_a_wheel_until_they_are_due(wheel: DelayService) -> None:
    wheel.send("gone", wc_deliver_at=now_ms() - 5000)
    running = wheel.start()
    due = {f"key-{number}": now_ms() + 1500 + 37 * number for number in range(20)}
    for key, at in due.items():
        wheel.send(key, wc_deliver_at=at, user="1")
    found = wheel.wait_for("orders", 21)
    for key, at in due.items():
        assert found[key].timestamp()[1] >= at
        assert dict(found[key].headers() or ()).keys() == {"wc-id", "user"}
        assert found[key].value() == b"value"
    assert running.stop().summary()["produced"] == 21


def test_its_producer_connects_before_the_first_record_is_due(
    wheel: DelayService, embedded: EmbeddedBroker
) -> None:
    embedded.track_requests()
    running = wheel.start()
    wait_until(lambda: embedded.requests()[ApiKey.INIT_PRODUCER_ID] > 0, DEADLINE_S, "an id")
    running.stop()


def test_status_counts_what_waits_in_the_wheel(wheel: DelayService) -> None:
    running = wheel.start()
    wheel.send("oldest", wc_delay=3_600_000)
    wheel.send("sooner", "soon", "too", wc_delay=1)
    wheel.wait_for("orders", 3)

    def waiting() -> int:
        ended = wheel.commands.run("delay", "status", "--json")
        return int(ended.json["waiting"])

    wait_until(lambda: waiting() == 1, DEADLINE_S, "three are delivered")
    running.stop()
    assert waiting() == 1


def test_a_killed_process_finds_its_wheel_again(wheel: DelayService, tmp_path: Path) -> None:
    due = now_ms() + 8000
    running = wheel.start()
    wheel.send(*(f"key-{number}" for number in range(50)), wc_deliver_at=due)
    wait_for_files(tmp_path / "wheel")
    running.signal(signal.SIGKILL)
    running.wait()
    again = wheel.start()
    found = wheel.wait_for("orders", 50)
    assert all(each.timestamp()[1] >= due for each in found.values())
    assert not again.lines_of(LogEvent.WHEEL_READ)


def test_a_new_host_reads_the_wheel_from_kafka(wheel: DelayService, tmp_path: Path) -> None:
    due = now_ms() + 6000
    running = wheel.start()
    wheel.send(*(f"key-{number}" for number in range(50)), wc_deliver_at=due)
    wait_for_files(tmp_path / "wheel")
    running.stop()
    wheel.configure(store="wheel", directory=str(tmp_path / "another host"))
    again = wheel.start()
    again.wait_for_event(LogEvent.WHEEL_READ)
    found = wheel.wait_for("orders", 50)
    assert all(each.timestamp()[1] >= due for each in found.values())


def test_a_cancelled_record_is_not_delivered(wheel: DelayService) -> None:
    running = wheel.start()
    due = now_ms() + 4000
    wheel.send("a", wc_deliver_at=due, wc_id="mail 1")
    wheel.send("b", wc_deliver_at=due, wc_id="mail 2")
    wheel.cancel("mail 1")
    assert list(wheel.wait_for("orders", 1)) == ["b"]
    summary = running.stop().summary()
    assert (summary["cancelled"], summary["produced"]) == (1, 1)


def test_a_record_whose_target_is_missing_waits_in_a_level_and_holds_up_no_other(
    wheel: DelayService,
) -> None:
    wheel.start()
    wheel.send("later", to="reminders-new", wc_delay=1500)
    wheel.send("sooner", wc_delay=1600)
    wheel.wait_for("orders", 1)
    wheel.wait_for("wc.delay.1s", 1)


def test_another_host_delivers_after_a_kill_on_a_real_broker(
    on_kafka: DelayService, tmp_path: Path
) -> None:
    wheel: dict[str, Any] = {"store": "wheel", "to": ["orders-*"], "partitions": 2}
    on_kafka.configure(**wheel, directory=str(tmp_path / "one"))
    target, due = f"orders-{on_kafka.topic}", now_ms() + 9000
    running = on_kafka.start()
    topics.make(AdminClient(on_kafka.client), NewTopic(target, 2))
    on_kafka.send(*(f"key-{number}" for number in range(20)), to=target, wc_deliver_at=due)
    wait_for_files(tmp_path / "one")
    running.signal(signal.SIGKILL)
    running.wait()
    on_kafka.configure(**wheel, directory=str(tmp_path / "two"))
    on_kafka.start().wait_for_event(LogEvent.WHEEL_READ)
    found = on_kafka.wait_for(target, 20)
    assert all(each.timestamp()[1] >= due for each in found.values())
