"""Clients that have lost their way to the cluster for good: noticed, and replaced."""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator, Mapping
from contextlib import suppress
from threading import Event
from types import SimpleNamespace
from typing import Any

import pytest
from confluent_kafka import KafkaError
from confluent_kafka.admin import BrokerMetadata, ClusterMetadata

from tests.kafka.fenced_broker import FencedBroker
from tests.kafka.quick_watchdogs import UnreportedWatchdog, quick_watchdog
from window_consumer.kafka.client_log import ClientLog
from window_consumer.kafka.cluster import Cluster
from window_consumer.kafka.embedded import EmbeddedBroker
from window_consumer.kafka.event_writer import EventWriter
from window_consumer.kafka.settings import EventNeeds
from window_consumer.kafka.sink import KafkaSink
from window_consumer.kafka.watchdogs.client import (
    CHECK_S,
    SILENT_S,
    SURE,
    ClientWatchdog,
    MakeClientWatchdog,
    has_brokers,
)
from window_consumer.kafka.writing.copy_writer import CopyWriter
from window_consumer.model.errors import PublishFailedError, WindowConsumerError
from window_consumer.model.protocols import Copy

LOG = ClientLog(logging.getLogger("window_consumer.client"))
ALL_DOWN = KafkaError(KafkaError._ALL_BROKERS_DOWN)
DEADLINE_S = 60.0
CLIENTS = 3
"""At once: each of them loses its way in most cases, not in all."""
REFRESH_MS = 200


class Watched:
    """A client, and others that are made to be asked."""

    def __init__(self, settings: Mapping[str, Any] | None = None) -> None:
        self.now = 1000.0
        self.cluster_is_there = True
        self.client_answers = False
        self.asked: list[float] = []
        self.others = Event()
        self.watchdog = ClientWatchdog(
            settings or {}, self._ask, lambda: self.now, notices_silence=True
        )

    def _ask(self, client: object, timeout_s: float) -> bool:
        if client is self:
            self.asked.append(timeout_s)
            return self.client_answers
        self.others.set()
        return self.cluster_is_there

    def checks(self, times: int) -> list[bool]:
        """Check until another client has answered ``times`` requests."""
        results = []
        for _ in range(times):
            self.now += CHECK_S
            self.others.clear()
            found = self.watchdog.is_lost(self)
            while self.watchdog._asked is not None:
                assert self.others.wait(DEADLINE_S)
                found = self.watchdog.is_lost(self)
            results.append(found)
        return results


@pytest.fixture
def watched() -> Watched:
    return Watched()


def test_nobody_is_asked_without_a_reason(watched: Watched) -> None:
    watched.watchdog.record_error(KafkaError(KafkaError._TRANSPORT))
    for _ in range(10):
        watched.now += SILENT_S - 1
        watched.watchdog.on_contact()
        assert not watched.watchdog.is_lost(watched)
    watched.now += SILENT_S - 1
    assert not watched.watchdog.is_lost(watched)
    assert not watched.others.is_set()


@pytest.mark.parametrize("silent_s", [0.0, SILENT_S])
def test_silence_and_suspicion_are_reasons_too(watched: Watched, silent_s: float) -> None:
    """Some clients do not say that all brokers are down before they ask nobody any more."""
    if not silent_s:
        watched.watchdog.suspect()
    watched.now += silent_s
    assert watched.checks(SURE) == [False] * (SURE - 1) + [True]


def test_one_answer_ends_a_silence(watched: Watched) -> None:
    watched.client_answers = True
    watched.now += SILENT_S
    assert watched.checks(1) == [False]
    watched.now += SILENT_S - 1
    assert not watched.watchdog.is_lost(watched)
    assert len(watched.asked) == 1


def test_silence_is_no_reason_where_nothing_is_to_come() -> None:
    watchdog = ClientWatchdog(
        {}, lambda _client, _timeout_s: pytest.fail("asked"), iter((0.0, 1e9)).__next__
    )
    assert not watchdog.is_lost(object())


def test_a_fetch_that_waits_for_records_is_waited_for() -> None:
    patient = Watched({"fetch.wait.max.ms": 7000})
    patient.watchdog.suspect()
    patient.checks(1)
    assert patient.asked[0] > 7.0


def test_a_client_that_alone_is_not_answered_is_lost(watched: Watched) -> None:
    watched.watchdog.record_error(ALL_DOWN)
    assert watched.checks(SURE) == [False] * (SURE - 1) + [True]


def test_while_the_cluster_is_away_the_client_is_not_asked(watched: Watched) -> None:
    watched.watchdog.record_error(ALL_DOWN)
    watched.cluster_is_there = False
    assert watched.checks(5) == [False] * 5
    assert watched.asked == []


def test_a_client_that_was_slow_once_is_not_lost(watched: Watched) -> None:
    watched.watchdog.record_error(ALL_DOWN)
    assert watched.checks(SURE - 1) == [False] * (SURE - 1)
    watched.client_answers = True
    assert watched.checks(1) == [False]
    asked = len(watched.asked)
    watched.now += 1000
    assert not watched.watchdog.is_lost(watched)  # it is not asked again before all are down again
    assert len(watched.asked) == asked


def test_settings_that_the_client_refuses_are_reported_by_the_client() -> None:
    assert not ClientWatchdog({"fetch.wait.max.ms": "long"}).is_lost(object())


class CountingWatchdog(UnreportedWatchdog):
    """Counts the reasons to check that the client did not report itself."""

    suspicions = 0

    def suspect(self) -> None:
        self.suspicions += 1
        super().suspect()


def test_messages_that_expire_are_a_reason() -> None:
    """Where all messages expire before a silence is long enough, none of them is an answer."""
    watchdogs: list[CountingWatchdog] = []

    def make_watchdog(
        settings: Mapping[str, Any], *, notices_silence: bool = False
    ) -> ClientWatchdog:
        watchdogs.append(CountingWatchdog(settings, notices_silence=notices_silence))
        return watchdogs[-1]

    nowhere = {"bootstrap.servers": "127.0.0.1:1", "log_level": 0}
    failures: list[PublishFailedError | None] = []

    needs = EventNeeds("wc-trace", "all", timeout_s=0.2)
    writer = EventWriter(nowhere, needs, "wc.trace", LOG, make_watchdog=make_watchdog)
    writer.send(b"{}", failures.append)
    assert writer.close(DEADLINE_S) == 0
    assert len(failures) == 1
    assert [each.suspicions for each in watchdogs] == [1]

    expiring = {**nowhere, "message.timeout.ms": 200}
    sink = KafkaSink(expiring, "charge", LOG, make_watchdog=make_watchdog)
    sink.write(Copy("orders", 0, None, b"v", ()), failures.append)
    assert sink.close(DEADLINE_S) == 0
    assert len(failures) == 2
    assert [each.suspicions for each in watchdogs] == [1, 1]


def test_an_answer_without_brokers_is_none() -> None:
    """Who gives it is fenced, and the client that takes it for an answer is lost with it."""
    metadata = ClusterMetadata()
    client = SimpleNamespace(list_topics=lambda **_: metadata)
    metadata.brokers = {}
    assert not has_brokers(client, 1.0)
    metadata.brokers = {1: BrokerMetadata()}
    assert has_brokers(client, 1.0)


# ---- with the client library


@pytest.fixture(
    params=[quick_watchdog(ClientWatchdog), quick_watchdog(UnreportedWatchdog)], ids=["", "unsaid"]
)
def make_watchdog(request: pytest.FixtureRequest) -> MakeClientWatchdog:
    """Return watchdogs of clients that report errors, and of clients that do not."""
    made: MakeClientWatchdog = request.param
    return made


@pytest.fixture
def fenced() -> Iterator[FencedBroker]:
    """Yield a broker from which clients lose their way."""
    with (
        EmbeddedBroker(topics={"orders": 1}) as broker,
        FencedBroker(broker.client_settings()["bootstrap.servers"], "orders") as fenced,
    ):
        yield fenced


def test_a_cluster_is_asked_again_after_it_had_no_brokers(
    fenced: FencedBroker, make_watchdog: MakeClientWatchdog
) -> None:
    settings = {"bootstrap.servers": fenced.bootstrap, "log_level": 0}
    clusters = [Cluster(settings, LOG, make_watchdog=make_watchdog) for _ in range(CLIENTS)]
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
    deadline = time.monotonic() + DEADLINE_S
    while True:
        try:
            assert "orders" in cluster.topic_names(0.5)
        except WindowConsumerError:
            assert time.monotonic() < deadline
        else:
            return


def test_producers_go_on_after_the_cluster_had_no_brokers(
    fenced: FencedBroker, make_watchdog: MakeClientWatchdog
) -> None:
    """What a lost client had to send is told to be lost; nothing is silent about it."""
    settings = {
        "bootstrap.servers": fenced.bootstrap,
        "log_level": 0,
        "topic.metadata.refresh.interval.ms": REFRESH_MS,
    }
    writers = [CopyWriter(settings, LOG, make_watchdog=make_watchdog) for _ in range(CLIENTS)]
    for writer in writers:
        writer.write(copy_of(b"before"), lambda _: None)
        assert writer.close(DEADLINE_S) == 0
    _until_fenced(writers, fenced)
    for writer in writers:
        _until_written(writer)


def copy_of(value: bytes) -> Copy:
    return Copy("orders", None, None, value, ())


def _until_written(writer: CopyWriter) -> None:
    """Send a message until it is acked; each that was sent has its answer before the next."""
    deadline = time.monotonic() + DEADLINE_S
    acked: list[bool] = [False]
    while not acked[-1]:
        answered = len(acked)
        writer.write(copy_of(b"it"), lambda failure: acked.append(failure is None))
        while len(acked) == answered:
            assert time.monotonic() < deadline
            writer.serve(0.05)


def _until_fenced(writers: list[CopyWriter], fenced: FencedBroker) -> None:
    """Wait until each client had time to ask, and as many answers as there are clients were given.

    What a client reports is nothing to wait for: some report nothing.
    """
    fenced.is_fenced = True
    begun = time.monotonic()
    while fenced.answers < CLIENTS or time.monotonic() < begun + 5 * REFRESH_MS / 1000:
        assert time.monotonic() < begun + DEADLINE_S
        for writer in writers:
            writer.serve(0.05)
    fenced.is_fenced = False
