"""Clients that have lost their way to the cluster for good: noticed, and replaced."""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator
from contextlib import suppress
from threading import Event

import pytest
from confluent_kafka import KafkaError

from tests.kafka.fenced_broker import FencedBroker
from window_consumer.kafka import lifeline
from window_consumer.kafka.client_log import ClientLog
from window_consumer.kafka.cluster import Cluster
from window_consumer.kafka.embedded import EmbeddedBroker
from window_consumer.kafka.lasting_producer import LastingProducer
from window_consumer.kafka.lifeline import LOOK_S, SURE, Lifeline
from window_consumer.model.errors import WindowConsumerError

LOG = ClientLog(logging.getLogger("window_consumer.client"))
ALL_DOWN = KafkaError(KafkaError._ALL_BROKERS_DOWN)
PATIENCE_S = 60.0
CLIENTS = 3
"""At once: each of them loses its way in most cases, not in all."""


class Watched:
    """A client, and others that are made to be asked."""

    def __init__(self) -> None:
        self.now = 1000.0
        self.cluster_is_there = True
        self.client_answers = False
        self.asked: list[float] = []
        self.others = Event()
        self.line = Lifeline({"bootstrap.servers": "127.0.0.1:1"}, self._ask, lambda: self.now)

    def _ask(self, client: object, timeout_s: float) -> bool:
        if client is self:
            self.asked.append(timeout_s)
            return self.client_answers
        self.others.set()
        return self.cluster_is_there

    def looks(self, times: int) -> list[bool]:
        """Look until each of so many questions to another client was answered."""
        said = []
        for _ in range(times):
            self.now += LOOK_S
            self.others.clear()
            found = self.line.is_lost(self)
            while self.line._asked is not None:
                assert self.others.wait(PATIENCE_S)
                found = self.line.is_lost(self)
            said.append(found)
        return said


@pytest.fixture
def watched() -> Watched:
    return Watched()


def test_nobody_is_asked_before_all_brokers_were_down(watched: Watched) -> None:
    watched.line.note(KafkaError(KafkaError._TRANSPORT))
    watched.now += 1000
    assert not watched.line.is_lost(watched)
    assert not watched.others.is_set()


def test_a_client_that_alone_is_not_answered_is_lost(watched: Watched) -> None:
    watched.line.note(ALL_DOWN)
    assert watched.looks(SURE) == [False] * (SURE - 1) + [True]


def test_while_the_cluster_is_away_the_client_is_not_asked(watched: Watched) -> None:
    watched.line.note(ALL_DOWN)
    watched.cluster_is_there = False
    assert watched.looks(5) == [False] * 5
    assert watched.asked == []


def test_a_client_that_was_slow_once_is_not_lost(watched: Watched) -> None:
    watched.line.note(ALL_DOWN)
    assert watched.looks(SURE - 1) == [False] * (SURE - 1)
    watched.client_answers = True
    assert watched.looks(1) == [False]
    asked = len(watched.asked)
    watched.now += 1000
    assert not watched.line.is_lost(watched)  # it is not asked again before all are down again
    assert len(watched.asked) == asked


# ---- with the client library


@pytest.fixture
def fenced(monkeypatch: pytest.MonkeyPatch) -> Iterator[FencedBroker]:
    monkeypatch.setattr(lifeline, "LOOK_S", 0.2)
    with (
        EmbeddedBroker(topics={"orders": 1}) as broker,
        FencedBroker(broker.client_settings()["bootstrap.servers"], "orders") as fenced,
    ):
        yield fenced


def test_a_cluster_is_asked_again_after_it_had_no_brokers(fenced: FencedBroker) -> None:
    settings = {"bootstrap.servers": fenced.bootstrap, "log_level": 0}
    clusters = [Cluster(settings, LOG) for _ in range(CLIENTS)]
    for cluster in clusters:
        cluster.topic_names()
    fenced.is_fenced = True
    for cluster in clusters:
        with suppress(WindowConsumerError):  # where the connection ends first
            cluster.topic_names(0.5)
    fenced.is_fenced = False
    assert fenced.answers >= CLIENTS
    for cluster in clusters:
        _until_answered(cluster)


def _until_answered(cluster: Cluster) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while True:
        try:
            assert "orders" in cluster.topic_names(0.5)
        except WindowConsumerError:
            assert time.monotonic() < deadline
        else:
            return


def test_producers_go_on_after_the_cluster_had_no_brokers(fenced: FencedBroker) -> None:
    """What a lost client had to send is told to be lost; nothing is silent about it."""
    settings = {
        "bootstrap.servers": fenced.bootstrap,
        "log_level": 0,
        "topic.metadata.refresh.interval.ms": 200,
    }
    producers = [LastingProducer(settings, LOG, lambda _: None) for _ in range(CLIENTS)]
    for producer in producers:
        producer.produce("orders", value=b"before")
        assert producer.wait(PATIENCE_S) == 0
    fenced.is_fenced = True
    for producer in producers:
        _until_down(producer)
    fenced.is_fenced = False
    for producer in producers:
        _until_written(producer)


def _until_written(producer: LastingProducer) -> None:
    """Send a message until it is acked; each that was sent has its answer before the next."""
    deadline = time.monotonic() + PATIENCE_S
    acked: list[bool] = [False]
    while not acked[-1]:
        answered = len(acked)
        producer.produce("orders", value=b"it", on_delivery=lambda *it: acked.append(it[0] is None))
        while len(acked) == answered:
            assert time.monotonic() < deadline
            producer.poll(0.05)


def _until_down(producer: LastingProducer) -> None:
    """Wait until the client knows no broker."""
    deadline = time.monotonic() + PATIENCE_S
    while not producer._lifeline._suspected:
        assert time.monotonic() < deadline
        producer.poll(0.05)
