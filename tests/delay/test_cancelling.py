"""Cancelled records on the embedded broker: they are not delivered, and the others are."""

from __future__ import annotations

import pytest

from tests import reading
from tests.commands import DEADLINE_S, Commands
from tests.delay.service import DelayService
from tests.waiting import wait_until
from window_consumer.kafka.embedded import EmbeddedBroker

SOON_MS = 3500
"""The level of 2 s, then of 1 s; the rest it waits in the window."""


def test_a_cancelled_record_is_not_delivered(service: DelayService) -> None:
    running = service.start()
    service.send("a", wc_delay=SOON_MS, wc_id="mail 7")
    service.send("b", wc_delay=SOON_MS, wc_id="mail 8")
    ended = service.commands.run("delay", "cancel", "--id", "mail 7", "--json")
    assert (ended.code, ended.json) == (0, {"cancelled": "mail 7"}), ended.said
    assert set(service.wait_for("orders", 1)) == {"b"}
    wait_until(lambda: waiting(service) == 0, DEADLINE_S, "both are done")
    summary = running.stop().summary()
    assert (summary["cancelled"], summary["produced"]) == (1, 1)
    assert reading.read_all(service.client, "wc.delay.dlq") == []


def waiting(service: DelayService) -> int:
    ended = service.commands.run("delay", "status", "--json")
    return int(ended.json["waiting"])


def test_any_client_cancels_with_a_record(service: DelayService) -> None:
    running = service.start()
    service.send("a", wc_delay=SOON_MS, wc_id="mail 7")
    service.send("b", wc_delay=SOON_MS, wc_id="mail 8")
    service.cancel("mail 7", "mail 8")
    service.cancel("mail 8", value=None)
    assert set(service.wait_for("orders", 1)) == {"b"}
    wait_until(lambda: waiting(service) == 0, DEADLINE_S, "both are done")
    assert running.stop().summary()["cancelled"] == 1


def test_one_that_comes_too_late_changes_nothing(service: DelayService) -> None:
    running = service.start()
    service.send("a", wc_delay=0, wc_id="mail 7")
    service.wait_for("orders", 1)
    service.cancel("mail 7")
    service.send("b", wc_delay=0, wc_id="mail 8")
    assert set(service.wait_for("orders", 2)) == {"a", "b"}
    assert running.stop().summary().get("cancelled", 0) == 0


def test_a_service_that_was_down_knows_them(service: DelayService) -> None:
    service.start().stop()
    service.send("a", wc_delay=0, wc_id="mail 7")
    service.cancel("mail 7")
    running = service.start()
    wait_until(lambda: waiting(service) == 0, DEADLINE_S, "it is done")
    assert running.stop().summary()["cancelled"] == 1


def test_services_with_topics_of_their_own_cancel_only_their_own_records(
    service: DelayService, embedded: EmbeddedBroker
) -> None:
    first = service.start()
    other = DelayService(service.kafka, service.commands, "team.later")
    for name in other.topics:
        embedded.create_topic(name, 2)
    other.configure()
    second = other.start()
    service.send("a", wc_delay=SOON_MS, wc_id="mail 7")
    other.send("a", to="reminders-mail", wc_delay=SOON_MS, wc_id="mail 7")
    other.send("b", to="reminders-mail", wc_delay=SOON_MS, wc_id="mail 8")
    other.cancel("mail 7")
    assert set(other.wait_for("reminders-mail", 1)) == {"b"}
    assert set(service.wait_for("orders", 1)) == {"a"}
    assert second.stop().summary()["cancelled"] == 1
    assert first.stop().summary().get("cancelled", 0) == 0
    assert set(other.wait_for("reminders-mail", 1)) == {"b"}


@pytest.mark.parametrize("record_id", ["", 301 * "x"])
def test_an_id_that_no_record_has_is_refused(record_id: str, service: DelayService) -> None:
    ended = service.commands.run("delay", "cancel", "--id", record_id)
    assert ended.code == 2, ended.said
    assert "--id" in ended.err


def test_without_a_service_there_is_nothing_to_cancel(commands: Commands) -> None:
    commands.configure({"kafka": {"bootstrap.servers": "127.0.0.1:1"}})
    ended = commands.run("delay", "cancel", "--id", "mail 7")
    assert ended.code == 2, ended.said
    assert "delay.to" in ended.err
