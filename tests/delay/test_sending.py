"""Sending through the delay service: by handlers, and by Producer."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from tests import reading
from tests.commands import DEADLINE_S
from tests.delay.service import DelayService
from window_consumer import App, Produce, Producer, Record
from window_consumer.kafka.embedded import EmbeddedBroker
from window_consumer.testing import TestApp

NOON = datetime(2030, 1, 1, 12, tzinfo=UTC)


@pytest.mark.parametrize(
    ("when", "header"),
    [
        ({"delay": "30m"}, ("wc-delay", b"1800000")),
        ({"delay": 1.5}, ("wc-delay", b"1500")),
        ({"delay": timedelta(days=1)}, ("wc-delay", b"86400000")),
        ({"deliver_at": NOON}, ("wc-deliver-at", b"1893499200000")),
        ({"deliver_at": NOON + timedelta(microseconds=1)}, ("wc-deliver-at", b"1893499200001")),
        ({"deliver_at": datetime(1960, 1, 1, tzinfo=UTC)}, ("wc-deliver-at", b"0")),
    ],
)
def test_a_delayed_result_is_a_record_for_the_service(
    when: dict[str, Any], header: tuple[str, bytes]
) -> None:
    made = Produce("reminders", "k", "v", headers={"mine": "1"}, **when)
    assert (made.topic, made.key, made.value) == ("wc.delay", b"k", b"v")
    assert made.headers == (("mine", b"1"), ("wc-deliver-to", b"reminders"), header)


@pytest.mark.parametrize(
    "when",
    [
        {"delay": "30"},
        {"delay": "soon"},
        {"delay": -1},
        {"delay": timedelta(seconds=-1)},
        {"delay": float("inf")},
        {"delay": float("nan")},
        {"deliver_at": NOON.replace(tzinfo=None)},
        {"delay": 1, "deliver_at": NOON},
    ],
)
def test_a_time_that_is_none_is_an_error(when: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=r"delay|deliver_at"):
        Produce("reminders", **when)


def test_the_sender_may_choose_the_id() -> None:
    made = Produce("reminders", "k", headers={"wc-id": "mine"}, delay="1s", id="mail 7")
    assert dict(made.headers)["wc-id"] == b"mail 7"
    assert len(made.headers) == 3
    assert Produce("reminders", id="mail 7").headers == (("wc-id", b"mail 7"),)


def test_a_service_with_a_topic_of_its_own_is_named() -> None:
    made = Produce("reminders", "k", delay="1s", delay_topic="team.delay")
    assert made.topic == "team.delay"
    assert Produce("reminders", "k", delay_topic="team.delay").topic == "reminders"


@pytest.mark.parametrize(("topic", "kind"), [("", ValueError), ("a b", ValueError), (7, TypeError)])
def test_a_service_that_cannot_be_is_an_error(topic: Any, kind: type[Exception]) -> None:
    with pytest.raises(kind, match="topic"):
        Produce("reminders", "k", delay="1s", delay_topic=topic)
    with pytest.raises(kind, match="topic"):
        Producer({"bootstrap.servers": "127.0.0.1:1"}, delay_topic=topic)


def test_a_producer_sends_to_and_cancels_at_the_service_that_it_names() -> None:
    with EmbeddedBroker() as broker:
        for topic in ("team.delay", "team.delay.cancel"):
            broker.create_topic(topic, 1)
        kafka = {"bootstrap.servers": broker.bootstrap}
        with Producer(kafka, delay_topic="team.delay") as producer:
            sent = producer.send("reminders", "k", "v", delay="1h").result(DEADLINE_S)
            cancelled = producer.cancel("mail 7").result(DEADLINE_S)
    assert (sent.topic, cancelled.topic) == ("team.delay", "team.delay.cancel")


@pytest.mark.parametrize("record_id", ["", 301 * "x", "a\x00"])
def test_an_id_that_cannot_be_is_an_error(record_id: str) -> None:
    with pytest.raises(ValueError, match="id"):
        Produce("reminders", id=record_id)
    with Producer({"bootstrap.servers": "127.0.0.1:1", "log_level": 0}) as producer:
        with pytest.raises(ValueError, match="id"):
            producer.send("reminders", id=record_id)
        with pytest.raises(ValueError, match="id"):
            producer.cancel(record_id)
        with pytest.raises(ValueError, match="time zone"):
            producer.cancel("mail 7", NOON.replace(tzinfo=None))


def test_a_producer_cancels_what_it_has_sent(service: DelayService) -> None:
    service.start()
    with Producer(service.client) as producer:
        chosen = producer.send("orders", b"a", b"7", delay="4s", id="mail 7")
        assert chosen.id == "mail 7"
        random = producer.send("orders", b"b", b"8", delay="4s")
        producer.send("orders", b"c", b"9", delay="4s")
        producer.cancel(chosen.id).result(10)
        cancelled = producer.cancel(random.id, datetime.now(UTC) + timedelta(seconds=9))
        assert cancelled.result(10).topic == "wc.delay.cancel"
    assert set(service.wait_for("orders", 1)) == {"c"}
    with Producer(service.client) as producer:
        sent = producer.send("orders", b"d")
        sent.result(10)
    (found,) = (each for each in reading.read_all(service.client, "orders") if each.key() == b"d")
    assert dict(found.headers())["wc-id"] == sent.id.encode()


def test_a_producer_sends_through_the_service(service: DelayService) -> None:
    service.start()
    with Producer(service.client) as producer:
        sent = producer.send("orders", b"a", b"7", delay="1200ms", headers={"mine": b"1"})
        assert sent.result(10).topic == "wc.delay"
        producer.send("orders", b"b", b"8", deliver_at=datetime.now(UTC)).result(10)
        assert producer.flush(10) == 0
    found = service.wait_for("orders", 2)
    assert dict(found["a"].headers())["mine"] == b"1"
    assert found["b"].value() == b"8"


def test_a_handler_reminds_itself() -> None:
    app = App("shop")
    reminded: list[bytes | None] = []

    @app.handler("orders")
    def charge(order: Record) -> Produce:
        return Produce("reminders", order.key, order.value, delay="30m")

    @app.handler("reminders")
    def remind(reminder: Record) -> None:
        reminded.append(reminder.key)

    workers = {"charge": {"group": "shop-charge"}, "remind": {"group": "shop-remind"}}
    with TestApp(app, config={"delay": {"to": ["reminders"]}, "workers": workers}) as wc_app:
        wc_app.send("orders", "hello", key="anna")
        wc_app.advance("29m")
        assert reminded == []
        wc_app.advance("61s")
        assert reminded == [b"anna"]
