"""The groups of a configuration's workers, as Kafka describes them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer, TopicPartition
from playwright.sync_api import Browser, expect

from tests.cli.test_admin import admin_of
from tests.commands import Commands, kafka_of
from tests.conftest import ConsumerOf, MakeTopic
from tests.console.configs import console, context, loaded
from window_consumer.admin.group_page import GroupPages
from window_consumer.admin.groups import GroupStatuses, topics_of
from window_consumer.kafka.embedded import EmbeddedBroker
from window_consumer.testing.real_kafka import RealKafka

EVIL = "<img src=x onerror='window.ran = 1'>"


def worker(**more: Any) -> dict[str, Any]:
    retry = {"levels": ["10s", "1m"], "on_failure": "park"}
    return {"topics": ["orders"], "group": "shop", "ordering": "key", "retry": retry, **more}


def test_the_topics_of_a_worker_are_named_by_what_their_records_wait_for(tmp_path: Path) -> None:
    kafka = {"bootstrap.servers": "127.0.0.1:1"}
    config = loaded(tmp_path, {"kafka": kafka, "workers": {"charge": worker()}}).config
    names = [
        *("orders", "shop.orders.retry.10s", "shop.orders.retry.1m", "shop.orders.retry.7h"),
        *("shop.orders.park", "shop.orders.dlq", "shop.orders.retry.now", "other.orders.dlq"),
    ]
    found = topics_of(config.workers["charge"], config, names)
    assert {each.name: (each.kind, each.level) for each in found} == {
        "orders": ("source", None),
        "shop.orders.retry.now": ("redriven", None),
        "shop.orders.retry.10s": ("retry", "10s"),
        "shop.orders.retry.1m": ("retry", "1m"),
        "shop.orders.retry.7h": ("retry", "7h"),
        "shop.orders.park": ("park", None),
        "shop.orders.dlq": ("dead-letter", None),
    }


def test_delayed_records_wait_in_the_levels_of_the_delay_service(tmp_path: Path) -> None:
    kafka = {"bootstrap.servers": "127.0.0.1:1"}
    config = loaded(tmp_path, {"kafka": kafka, "delay": {"to": ["orders"]}}).config
    (service,) = config.workers.values()
    (source,) = service.topics
    own = service.own_topics
    assert own is not None
    names = [source, own.retry.format(delay="30s")]
    found = topics_of(service, config, names)
    assert [(each.kind, each.level) for each in found] == [("source", None), ("retry", "30s")]


def test_a_cluster_that_is_away_is_reported_for_its_worker_without_secrets(tmp_path: Path) -> None:
    kafka = {"bootstrap.servers": "127.0.0.1:1", "sasl.password": "hunter22"}
    workers = {"charge": worker(), "all": {"topics": ["a"], "delivery": "broadcast"}}
    asking = context(tmp_path, {"kafka": kafka, "workers": workers})
    charge, everything = GroupStatuses(asking, deadline_s=0.3).all()["workers"]
    assert (charge["group"], bool(charge["error"])) == ("shop", True)
    assert "hunter22" not in charge["error"]
    assert (everything["group"], everything["error"]) == (None, None)


def test_members_offsets_and_what_waits_come_from_kafka(
    kafka: RealKafka,
    make_topic: MakeTopic,
    unique_name: Callable[[str], str],
    consumer_of: ConsumerOf,
    tmp_path: Path,
) -> None:
    orders, group = make_topic("orders", 2), unique_name("shop")
    settings = {"bootstrap.servers": kafka.bootstrap}
    producer = Producer({**settings, "log_level": 0})
    for _ in range(5):
        producer.produce(orders, b"x", partition=1)
    assert producer.flush(60) == 0
    configured = worker(topics=[orders], group=group)
    asking = context(tmp_path, {"kafka": settings, "workers": {"charge": configured}})
    with consumer_of(settings, **{"group.id": group, "client.id": "me"}) as consumer:
        consumer.subscribe([orders])
        while not consumer.assignment():
            consumer.poll(0.1)
        consumer.commit(offsets=[TopicPartition(orders, 1, 2)], asynchronous=False)
        (status,) = GroupStatuses(asking).all()["workers"]
    assert (status["state"], status["error"]) == ("Stable", None)
    (member,) = status["members"]
    assert (member["client_id"], member["partitions"]) == ("me", 2)
    (topic,) = status["topics"]
    assert (topic["topic"], topic["kind"], topic["waiting"]) == (orders, "source", 3)
    empty, full = topic["partitions"]
    assert (empty["committed"], empty["waiting"]) == (None, 0)
    assert (full["committed"], full["end"], full["waiting"]) == (2, 5, 3)
    assert full["member"].startswith("me on ")


def made_up() -> dict[str, Any]:
    partition = {"partition": 0, "start": 0, "end": 9, "committed": 4, "waiting": 5, "member": EVIL}
    topic = {"topic": EVIL, "kind": "retry", "source": "orders", "level": "10s", "waiting": 5}
    members = [{"client_id": EVIL, "host": "/10.0.0.7", "partitions": 1}]
    about = {"group": "shop", "error": None, "state": "Stable", "protocol": "Classic"}
    charge = {"name": "charge", **about, "assignor": "range", "members": members}
    charge["topics"] = [{**topic, "partitions": [partition]}]
    away = {"name": "away", "group": "g", "error": EVIL}
    return {"time": 1, "workers": [charge, away, {"name": "all", "group": None, "error": None}]}


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_the_page_shows_groups_to_eyes_and_keyboards_at_any_width(
    browser: Browser, scheme: Any
) -> None:
    with console({"admin": GroupPages(made_up)}) as ask:
        page = browser.new_page(color_scheme=scheme, viewport={"width": 320, "height": 640})
        complaints: list[str] = []
        page.on("pageerror", lambda error: complaints.append(str(error)))
        page.on("console", lambda message: complaints.append(message.text))
        page.goto(f"http://127.0.0.1:{ask.port}/")
        expect(page.locator("h2")).to_have_text(["charge", "away", "all"])
        expect(page.get_by_role("alert")).to_have_text(EVIL)
        opener = page.get_by_role("button", name=f"Partitions of {EVIL}")
        opener.focus()
        page.keyboard.press("Enter")
        cells = page.locator("tr.more tbody td")
        expect(cells).to_have_text(["0", "0 to 9", "4", "5", EVIL])
        assert page.evaluate("document.documentElement.scrollWidth") <= 320
        assert page.evaluate("window.ran") is None
        background = page.evaluate("getComputedStyle(document.body).backgroundColor")
        assert background == {"light": "rgb(246, 247, 249)", "dark": "rgb(17, 21, 27)"}[scheme]
        page.close()
    assert complaints == []


def test_the_command_serves_until_a_signal_and_needs_no_application(
    commands: Commands, embedded: EmbeddedBroker
) -> None:
    embedded.create_topic("orders", 1)
    config = {"kafka": kafka_of(embedded), "workers": {"charge": worker()}}
    commands.configure({**config, "admin": {"tokens": {"me": {"token": "t" * 16, "role": "read"}}}})
    command = commands.start("console", "--listen", "127.0.0.1:0", "--log-format", "json")
    ask = admin_of(command)
    assert ask("/api/groups").status == 401
    me = {"authorization": "Bearer " + "t" * 16}
    assert ask("/", **me).headers["location"] == "groups"
    (charge,) = ask("/api/groups", **me).json["workers"]
    assert (charge["name"], charge["group"]) == ("charge", "shop")
    assert ask("/api/windows", **me).status == 404
    assert command.stop().code == 0


def test_what_others_can_reach_needs_token_and_tls_here_too(
    commands: Commands, embedded: EmbeddedBroker
) -> None:
    commands.configure({"kafka": kafka_of(embedded), "workers": {"charge": worker()}})
    ended = commands.run("console", "--listen", "0.0.0.0:0")
    assert ended.code == 2
    assert "admin.token" in ended.err
    assert commands.run("console", "--listen", "nowhere").code == 2
