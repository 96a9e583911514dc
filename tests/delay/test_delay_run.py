"""``delay run`` on the embedded broker: delivered in time and unchanged, or a dead letter."""

from __future__ import annotations

import signal
import time

import pytest

from tests import reading
from tests.commands import DEADLINE_S
from tests.delay.service import DelayService

LATE_MS = 5000
"""A busy machine shall not break a test; how late records come is measured by a benchmark."""


def test_records_come_when_they_are_due_and_never_earlier(service: DelayService) -> None:
    running = service.start()
    begin = round(time.time() * 1000)
    delays = {"now": 0, "in the window": 400, "one level": 1700, "both levels": 3700}
    for key, delay in delays.items():
        service.send(key, wc_deliver_at=begin + delay)
    found = service.wait_for("orders", len(delays))
    late = {key: found[key].timestamp()[1] - begin - delay for key, delay in delays.items()}
    assert all(0 <= each < LATE_MS for each in late.values()), late
    assert running.stop().summary()["produced"] == len(delays)
    # 1.7 s takes the level of 1 s, 3.7 s those of 2 and 1 s.
    levels = [len(reading.read_all(service.client, name)) for name in service.topics[1:3]]
    assert levels == [2, 1]


def test_a_delivered_record_is_the_one_that_was_sent(service: DelayService) -> None:
    service.start()
    service.send("a", wc_delay=1100, wc_id="mail 7", wc_tags="x", user="1", trace="2")
    service.send("b", wc_delay=0)
    found = service.wait_for("orders", 2)
    record = found["a"]
    assert record.value() == b"value"
    assert sorted(record.headers()) == [
        ("trace", b"2"),
        ("user", b"1"),
        ("wc-id", b"mail 7"),
        ("wc-tags", b"x"),
    ]
    ((name, place),) = found["b"].headers()
    assert name == "wc-id"
    assert place.startswith(b"wc.delay/")


def test_a_record_past_due_comes_at_once(service: DelayService) -> None:
    service.send("old", to="reminders-mail", wc_deliver_at=1)
    service.start()
    assert set(service.wait_for("reminders-mail", 1)) == {"old"}


def test_what_cannot_be_delivered_is_a_dead_letter_with_its_reason(service: DelayService) -> None:
    service.start()
    year_ms = 365 * 86_400_000
    service.send("too long", wc_delay=year_ms)
    service.send("no number", wc_deliver_at="soon")
    service.send("negative", wc_delay=-5)
    service.send("no time")
    service.send("no target", to=None, wc_delay=1)
    service.send("not allowed", to="payments", wc_delay=1)
    service.send("ladder", to="shop.orders.retry.10s", wc_delay=1)
    service.send("delay", to="wc.delay.1s", wc_delay=1)
    letters = service.wait_for("wc.delay.dlq", 8)
    assert {key: dict(each.headers())["wc-reason"] for key, each in letters.items()} == {
        "too long": b"DELAY_TOO_LONG",
        "no number": b"DELAY_UNREADABLE",
        "negative": b"DELAY_UNREADABLE",
        "no time": b"DELAY_UNREADABLE",
        "no target": b"TARGET_NOT_ALLOWED",
        "not allowed": b"TARGET_NOT_ALLOWED",
        "ladder": b"TARGET_IS_OURS",
        "delay": b"TARGET_IS_OURS",
    }
    # A redrive needs what the sender asked for.
    assert dict(letters["too long"].headers())["wc-delay"] == b"%d" % year_ms
    assert reading.read_all(service.client, "orders") == []


def test_a_level_that_is_removed_is_drained(service: DelayService) -> None:
    first = service.start()
    begin = round(time.time() * 1000)
    service.send("a", "b", wc_deliver_at=begin + 2500)
    service.wait_for("wc.delay.2s", 2)
    first.signal(signal.SIGKILL)
    first.process.wait(DEADLINE_S)
    service.configure(levels=["1s"])
    service.start()
    found = service.wait_for("orders", 2)
    assert all(each.timestamp()[1] >= begin + 2500 for each in found.values())


def test_its_dead_letters_are_those_of_the_worker_delay(service: DelayService) -> None:
    service.start()
    service.send("no time")
    service.wait_for("wc.delay.dlq", 1)
    listed = service.commands.run("dlq", "list", "-w", "delay", "--json")
    assert listed.code == 0, listed.said
    assert "DELAY_UNREADABLE" in listed.out


def test_a_kill_loses_nothing(service: DelayService) -> None:
    first = service.start()
    begin = round(time.time() * 1000)
    service.send(*(f"key {number}" for number in range(20)), wc_deliver_at=begin + 3500)
    service.wait_for("wc.delay.2s", 20)
    first.signal(signal.SIGKILL)
    first.process.wait(DEADLINE_S)
    service.start()
    found = service.wait_for("orders", 20)
    assert all(each.timestamp()[1] >= begin + 3500 for each in found.values())


@pytest.mark.parametrize("run", ["true", "false"])
def test_run_has_the_service_beside_its_workers_unless_configured_otherwise(
    run: str, service: DelayService
) -> None:
    service.commands.application(
        "from window_consumer import App, Record\n"
        "app = App('shop')\n\n"
        "@app.handler()\n"
        "def charge(order: Record) -> None:\n"
        "    print('charged', order.key.decode(), flush=True)\n"
    )
    service.configure({"charge": {"topics": ["orders"], "group": "shop"}}, run=run == "true")
    service.send("a", wc_delay=10)
    running = service.commands.start("run", "shop:app")
    if run == "true":
        running.wait_for("charged a")
    else:
        running.wait_for("charge: reads")
        service.send("later", wc_delay=10)
        time.sleep(1.0)  # a service that runs all the same has the time to deliver it
        assert reading.read_all(service.client, "orders") == []
