"""``delay run`` with schedules on the embedded broker."""

from __future__ import annotations

import signal
import time
from datetime import datetime

from tests import reading
from tests.commands import DEADLINE_S
from tests.delay.service import DelayService
from window_consumer.kafka.embedded import EmbeddedBroker
from window_consumer.model.log_events import LogEvent


def ticks(service: DelayService, count: int, topic: str = "reports") -> list[str]:
    """Return the times of the ticks in the order of their records, once there are so many."""
    deadline = time.monotonic() + DEADLINE_S
    while len(found := reading.read_all(service.client, topic)) < count:
        assert time.monotonic() < deadline, f"{len(found)} ticks of {count}"
        time.sleep(0.1)
    assert {(each.key(), each.value()) for each in found} == {(b"k", b"now")}
    headers = [dict(each.headers()) for each in found]
    assert {each["kind"] for each in headers} == {b"tick"}
    ids = [(each["wc-id"] or b"").decode() for each in headers]
    assert all(each.startswith("schedule/secondly/") for each in ids)
    return [each.rpartition("/")[2] for each in ids]


def seconds(ticks: list[str]) -> list[int]:
    """Return the times in seconds from the first one."""
    found = [round(datetime.fromisoformat(each).timestamp()) for each in ticks]
    return [each - min(found) for each in found]


def test_ticks_come_in_order_and_a_kill_loses_none(service: DelayService) -> None:
    first = service.start()
    first.wait_for_event(LogEvent.SCHEDULES_OWNED)
    ticks(service, 2)
    first.signal(signal.SIGKILL)
    first.process.wait(DEADLINE_S)
    before = len(reading.read_all(service.client, "reports"))
    service.start()
    found = seconds(ticks(service, before + 3))
    assert sorted(set(found)) == list(range(max(found) + 1))
    assert len(found) - len(set(found)) <= 1  # the one that was on its way


def test_ticks_are_traced_and_counted_as_produced(
    service: DelayService, embedded: EmbeddedBroker
) -> None:
    embedded.create_topic("wc.trace", 1)
    embedded.create_topic("wc.audit", 1)
    audit = {"enabled": True, "directory": "audit", "ids": True}
    service.sections = {**service.sections, "trace": {"sample": "100%"}, "audit": audit}
    service.configure()
    running = service.start()
    ticks(service, 2)
    running.stop()
    records = reading.read_all(service.client, "reports")
    ids = {dict(each.headers())["wc-id"].decode() for each in records}
    events = reading.events(embedded.read_all("wc.trace"))
    sent = [each for each in events if each.topic == "reports"]
    assert {(each.role, each.step, each.client_id) for each in sent} == {
        ("producer", "sent", "wc-schedules")
    }
    assert {each.record_id for each in sent} == {each.root_id for each in sent} == ids
    counts = reading.counts(embedded.read_all("wc.audit"))
    produced = [each for each in counts if each.tier == "produced"]
    assert {(each.client, each.topic, each.group) for each in produced} == {
        ("wc-schedules", "reports", "")
    }
    assert sum(each.count for each in produced) == len(records)
    assert all(each.id_xor is not None for each in produced)
