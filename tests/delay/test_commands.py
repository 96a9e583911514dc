"""``delay send`` and ``delay status``."""

from __future__ import annotations

import time
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from tests import reading
from tests.commands import DEADLINE_S, Commands
from tests.delay.service import LEVELS, DelayService
from tests.waiting import wait_until
from window_consumer.kafka.embedded import EmbeddedBroker
from window_consumer.kafka.embedded.capacity import NewRecord

DAY_S = 86_400
HELD_AT_MOST = 2000
"""How many records that are not due a member holds of a partition, and one fetch more."""


def status_of(service: DelayService) -> dict[str, Any]:
    ended = service.commands.run("delay", "status", "--json")
    assert ended.code == 0, ended.said
    found: dict[str, Any] = ended.json
    return found


def waiting(service: DelayService) -> list[int]:
    """Return how many records wait in the service's topic and in each level."""
    ended = service.commands.run("delay", "status", "--json")
    if ended.code:
        return []  # new topics have no leader for a moment; the caller asks again
    return [each["waiting"] for each in ended.json["topics"]]


# ---- send


def test_a_sent_record_is_delivered_at_its_time(service: DelayService) -> None:
    service.start()
    begin = time.time()
    what = ("--key", "anna", "--value", "coffee", "--header", "user=1=2", "--id", "mail 7")
    target = ("--to", "orders", "--delay", "1500ms")
    ended = service.commands.run("delay", "send", *target, *what, "--json")
    assert ended.code == 0, ended.said
    assert (ended.json["id"], ended.json["to"]) == ("mail 7", "orders")
    assert datetime.fromisoformat(ended.json["due"]).timestamp() >= begin + 1.499
    record = service.wait_for("orders", 1)["anna"]
    assert record.value() == b"coffee"
    assert sorted(record.headers()) == [("user", b"1=2"), ("wc-id", b"mail 7")]
    assert record.timestamp()[1] >= (begin + 1.5) * 1000


def test_a_record_can_have_a_value_of_a_file_and_a_time(service: DelayService) -> None:
    (service.commands.directory / "value").write_bytes(b"\x00\xff")
    noon = datetime.now(UTC) + timedelta(hours=1)
    options = ("--at", noon.isoformat(), "--value-file", "value")
    ended = service.commands.run("delay", "send", "--to", "reminders-mail", *options)
    assert ended.code == 0, ended.said
    (record,) = reading.read_all(service.client, "wc.delay")
    assert (record.key(), record.value()) == (None, b"\x00\xff")
    headers = {name: value.decode() for name, value in record.headers()}
    assert headers.pop("wc-deliver-to") == "reminders-mail"
    assert abs(int(headers.pop("wc-deliver-at")) - noon.timestamp() * 1000) <= 1
    assert headers.pop("wc-id") in ended.out
    assert headers == {}


@pytest.mark.parametrize(
    "options",
    [
        ["--to", "orders"],
        ["--to", "orders", "--delay", "1s", "--at", "2030-01-01"],
        ["--to", "payments", "--delay", "1s"],
        ["--to", "wc.delay.1s", "--delay", "1s"],
        ["--to", "orders", "--delay", "31d"],
        ["--to", "orders", "--delay", "1s", "--header", "user"],
        ["--to", "orders", "--delay", "1s", "--header", "wc-delay=1"],
        ["--to", "orders", "--delay", "1s", "--value", "a", "--value-file", "workers.yaml"],
        ["--to", "orders", "--delay", "1s", "--id", ""],
        ["--to", "orders", "--delay", "1s", "--id", 301 * "x"],
    ],
)
def test_what_would_never_be_delivered_is_not_sent(
    options: list[str], service: DelayService
) -> None:
    ended = service.commands.run("delay", "send", *options)
    assert ended.code == 2, ended.said
    assert reading.read_all(service.client, "wc.delay") == []


@pytest.mark.parametrize("command", [["send", "--to", "orders", "--delay", "1s"], ["status"]])
def test_without_a_service_there_is_nothing_to_ask(command: list[str], commands: Commands) -> None:
    commands.configure({"kafka": {"bootstrap.servers": "127.0.0.1:1"}})
    ended = commands.run("delay", *command)
    assert ended.code == 2, ended.said
    assert "delay.to" in ended.err


# ---- status


def test_status_counts_what_waits_in_each_level(service: DelayService) -> None:
    assert waiting(service) == [0, 0, 0]
    service.send("a", "b", wc_delay=DAY_S * 1000)
    assert waiting(service) == [2, 0, 0]
    running = service.start()
    wait_until(lambda: waiting(service) == [0, 0, 2], DEADLINE_S, "both wait in the longest level")
    assert running.stop().code == 0
    found = status_of(service)
    (level,) = (each for each in found["topics"] if each["level"] == LEVELS[-1])
    assert level["topic"] == f"wc.delay.{LEVELS[-1]}"
    assert found["waiting"] == 2
    assert abs(level["next_due_ms"] - found["time_ms"]) < DEADLINE_S * 1000
    assert level["paused_partitions"] == 0
    wait_until(lambda: overdue(service) > 0, DEADLINE_S, "nobody forwards them")
    ended = service.commands.run("delay", "status")
    assert ended.code == 0, ended.said
    assert "overdue" in ended.out
    (level,) = (each for each in status_of(service)["topics"] if each["level"] == LEVELS[-1])
    assert 0 < level["late_p99_s"] <= level["late_s"]


def overdue(service: DelayService) -> float:
    return max(float(each["late_s"]) for each in status_of(service)["topics"])


def test_status_counts_no_record_that_is_done(service: DelayService) -> None:
    running = service.start()
    service.send("later", wc_delay=DAY_S * 1000)
    service.send("now", wc_delay=0)
    service.wait_for("orders", 1)
    wait_until(lambda: sum(waiting(service)) == 1, DEADLINE_S, "one has been delivered")
    assert running.stop().code == 0


def test_status_knows_where_so_many_wait_that_their_partition_is_paused(
    service: DelayService, embedded: EmbeddedBroker
) -> None:
    assert waiting(service) == [0, 0, 0]
    record = NewRecord(b"value", headers=[("wc-not-before", b"1")], partition=1)
    embedded.fill("wc.delay.2s", [record] * HELD_AT_MOST)
    *_, level = status_of(service)["topics"]
    assert (level["waiting"], level["paused_partitions"]) == (HELD_AT_MOST, 1)


def test_status_knows_the_members_and_the_topics_that_are_missing(on_kafka: DelayService) -> None:
    on_kafka.configure()
    found = status_of(on_kafka)
    assert [each["partitions"] for each in found["topics"]] == [0, 0, 0]
    assert (found["members"], found["waiting"]) == (0, 0)
    running = on_kafka.start()
    on_kafka.send("a", "b", wc_delay=DAY_S * 1000)
    wait_until(lambda: waiting(on_kafka) == [0, 0, 2], DEADLINE_S, "both wait in a level")
    assert status_of(on_kafka)["members"] == 1
    assert running.stop().code == 0
