"""Logins at a real Kafka, which checks tokens and ends connections when theirs expire."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml
from confluent_kafka import Producer as ConfluentProducer

from tests import reading
from tests.login.token_server import TokenServer, granting, refusing
from tests.waiting import wait_until
from window_consumer import App, Fatal, Producer, Record
from window_consumer.testing.real_kafka import RealKafka

DEADLINE_S = 60.0
HIDDEN = "hunter2-hunter2"


def login_at(server: TokenServer) -> dict[str, Any]:
    return {"kind": "oidc", "token_url": server.url, "client_id": "shop", "client_secret": HIDDEN}


def kafka_section(kafka: RealKafka, server: TokenServer) -> dict[str, Any]:
    """Return the section of a configuration: one login, and no encryption as it is a test."""
    return {
        "bootstrap.servers": kafka.sasl_bootstrap,
        "security.protocol": "SASL_PLAINTEXT",
        "login": login_at(server),
    }


def plain(kafka: RealKafka) -> dict[str, Any]:
    return {"bootstrap.servers": kafka.bootstrap, "log_level": 0}


def send(kafka: RealKafka, topic: str, *values: bytes) -> None:
    producer = ConfluentProducer(plain(kafka))
    for value in values:
        producer.produce(topic, value)
    assert producer.flush(DEADLINE_S) == 0


class Refusing:
    """An application whose handler refuses each record, so that a copy is written, too."""

    def __init__(self) -> None:
        self.app = App("shop")
        self.values: list[str] = []

        @self.app.handler("filled in", group="filled in", ordering="unordered")
        def charge(record: Record) -> None:
            self.values.append(record.text())
            raise Fatal("refused")


def configured(directory: Path, kafka: dict[str, Any], topic: str, group: str) -> Path:
    path = directory / "workers.yaml"
    worker = {"topics": [topic], "group": group}
    path.write_text(yaml.safe_dump({"kafka": kafka, "workers": {"charge": worker}}))
    return path


def dead_letters(kafka: RealKafka, topic: str, group: str) -> list[bytes | None]:
    found = reading.read_all(plain(kafka), f"{group}.{topic}.dlq")
    return [each.value() for each in found]


def test_all_clients_of_a_worker_log_in_with_one_token(
    kafka: RealKafka,
    token_server: TokenServer,
    make_topic: Callable[..., str],
    unique_name: Callable[[str], str],
    tmp_path: Path,
) -> None:
    topic, group = make_topic("orders"), unique_name("group")
    send(kafka, topic, b"1")
    shop = Refusing()
    config = configured(tmp_path, kafka_section(kafka, token_server), topic, group)
    with shop.app.start(config):
        wait_until(lambda: dead_letters(kafka, topic, group) == [b"1"], DEADLINE_S)
    assert len(token_server.requests) == 1


@pytest.mark.slow
def test_a_worker_outlives_its_tokens_and_an_outage_of_the_token_server(
    kafka: RealKafka,
    token_server: TokenServer,
    make_topic: Callable[..., str],
    unique_name: Callable[[str], str],
    tmp_path: Path,
) -> None:
    topic, group = make_topic("orders"), unique_name("group")
    token_server.answer = granting(lifetime_s=4.0)
    shop = Refusing()
    config = configured(tmp_path, kafka_section(kafka, token_server), topic, group)
    with shop.app.start(config):
        send(kafka, topic, b"1")
        wait_until(lambda: dead_letters(kafka, topic, group) == [b"1"], DEADLINE_S)
        token_server.wait_for_more(2)
        send(kafka, topic, b"2")
        wait_until(lambda: len(shop.values) == 2, DEADLINE_S)
        token_server.answer = refusing(503)
        gone = time.monotonic() + 6.0
        wait_until(lambda: time.monotonic() > gone, DEADLINE_S)
        send(kafka, topic, b"3")
        token_server.answer = granting()
        wait_until(lambda: len(dead_letters(kafka, topic, group)) == 3, DEADLINE_S)
    # In the outage the session may end, and with it the commit of what was called last.
    assert list(dict.fromkeys(shop.values)) == ["1", "2", "3"]


def test_a_producer_logs_in_with_the_same_key(
    kafka: RealKafka, token_server: TokenServer, make_topic: Callable[..., str]
) -> None:
    topic = make_topic("orders")
    with Producer(kafka_section(kafka, token_server)) as producer:
        assert producer.send(topic, value=b"1").result(DEADLINE_S).offset == 0
    assert [each.value() for each in reading.read_all(plain(kafka), topic)] == [b"1"]
