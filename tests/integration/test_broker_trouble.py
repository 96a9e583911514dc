"""Brokers that go away, coordinators that move, commits that are refused."""

from __future__ import annotations

import re
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from threading import Event
from typing import Any

import pytest

from tests.integration.conftest import PROTOCOLS, protocol_settings
from tests.integration.retry_topics import CALM, RetryTopics
from tests.integration.shop import DEADLINE_S, Shop, fails_on
from tests.waiting import wait_until
from window_consumer import Record
from window_consumer.kafka.embedded import ApiKey, EmbeddedBroker, ErrorCode, NewRecord
from window_consumer.model.log_events import LogEvent
from window_consumer.runtime.limited_log import QUIET_S
from window_consumer.testing.guarantees import NoDuplicates, OneAtATimePerKey
from window_consumer.testing.real_kafka import RealKafka

GONE_S = 30.0
SOME_MORE = 3
"""Lines of a kind beside one for each time of quiet: its ends, and numbers that are left out."""


@pytest.fixture(scope="module")
def own(kafka: RealKafka, tmp_path_factory: pytest.TempPathFactory) -> Iterator[RealKafka]:
    """One that may be stopped, knows only classic groups and takes little metadata."""
    assert kafka.bootstrap, "skipped where there is none"
    settings: dict[str, str | int] = {
        "group.coordinator.rebalance.protocols": "classic",
        "offset.metadata.max.bytes": 100,
    }
    with RealKafka.start(tmp_path_factory.mktemp("own"), settings) as started:
        yield started


@pytest.fixture(scope="module")
def frozen(kafka: RealKafka, tmp_path_factory: pytest.TempPathFactory) -> Iterator[RealKafka]:
    """Another one that may be stopped, with everything that a Kafka has."""
    assert kafka.bootstrap, "skipped where there is none"
    with RealKafka.start(tmp_path_factory.mktemp("frozen")) as started:
        yield started


ShopAt = Callable[..., Shop]


@pytest.fixture
def shop_at(unique_name: Callable[[str], str], tmp_path: Path) -> ShopAt:
    def make(kafka: RealKafka, partitions: int = 1) -> Shop:
        client = {"bootstrap.servers": kafka.bootstrap}
        shop = Shop(client, unique_name("orders"), unique_name("shop"), tmp_path)
        shop.create_topic(shop.topic, partitions)
        return shop

    return make


NUMBERS = re.compile(r"\d+")
CLIENT = re.compile(r"\[wc-[^\]]*\]")
"""Each client is kept from repeating itself; those of all workers write into one log."""
WENT_AWAY = re.compile(r"work: (broker|topic orders.*): .*(refused|timed out)", re.IGNORECASE)


@contextmanager
def away(go: Callable[[], None], come_back: Callable[[], None]) -> Iterator[None]:
    """Take a broker away for the block, and bring it back however the block ends."""
    go()
    try:
        yield
    finally:
        come_back()


def for_a_while(seconds: float) -> None:
    """Let time pass: how long the broker is away is what the test is about."""
    began = time.monotonic()
    wait_until(lambda: time.monotonic() - began >= seconds, seconds + 30, "time passes")


# ---- brokers that go away


@pytest.mark.slow
def test_workers_go_on_when_a_broker_was_frozen_or_dead_for_half_a_minute(
    own: RealKafka, frozen: RealKafka, shop_at: ShopAt
) -> None:
    """One broker is killed and started again, the other answers nothing meanwhile."""
    shops = {shop_at(own, 2): "classic"}
    shops.update({shop_at(frozen, 2): protocol for protocol in PROTOCOLS})
    key = {"ordering": "key", "retry": {"on_failure": "overtake"}}
    with ExitStack() as running:
        for shop, protocol in shops.items():
            running.enter_context(
                shop.running(kafka=protocol_settings(protocol, may_die=True), **key)
            )
            shop.until_reading()
            shop.produce(range(200), keys=20)
            shop.until_called(100)
        lines, began = {shop: len(shop.log.lines) for shop in shops}, time.monotonic()
        with away(own.kill, own.restart), away(frozen.pause, frozen.resume):
            for_a_while(GONE_S)
        logged = {shop: shop.log.lines[lines[shop] :] for shop in shops}
        most = (time.monotonic() - began) / QUIET_S + SOME_MORE
        for shop in shops:
            shop.produce(range(200, 400), keys=20)
            shop.until_committed()
    for shop in shops:
        assert shop.violations() == []
        kinds = Counter((*CLIENT.findall(line)[:1], NUMBERS.sub("", line)) for line in logged[shop])
        assert any(WENT_AWAY.search(kind[-1]) for kind in kinds)
        assert max(kinds.values()) <= most, kinds.most_common(3)


def test_a_worker_can_be_stopped_while_its_broker_is_away(
    frozen: RealKafka, shop_at: ShopAt
) -> None:
    """It ends in time, commits nothing and says so; what it had done runs again."""
    orders = shop_at(frozen)
    orders.produce(range(100))
    with orders.running(stop_timeout="2s", commit_interval="60s") as running:
        orders.until_called(100)
        with away(frozen.pause, frozen.resume):
            running.stop()
            assert running.wait(2 + 5)
    assert orders.log.of(LogEvent.COMMIT_SKIPPED)
    with orders.running():
        orders.until_committed()
    assert orders.violations() == []


def test_calls_that_end_while_the_broker_is_away_are_committed_later(
    own: RealKafka, shop_at: ShopAt
) -> None:
    orders, go_on = shop_at(own), Event()
    orders.behave = lambda _: go_on.wait(DEADLINE_S)
    orders.produce(range(50))
    patient = {"group.protocol": "classic", "session.timeout.ms": 60_000}
    with orders.running(concurrency=50, kafka=patient):
        orders.until_called(50)
        with away(own.stop, own.restart):
            go_on.set()
            orders.until(lambda: len(orders.events) == 100, "all calls are over")
        orders.until_committed()
    assert orders.violations(NoDuplicates()) == []


IMPATIENT = {"message.timeout.ms": 2000}
"""How long the client tries by itself to write a copy, shortened."""


def test_records_that_fail_while_the_broker_is_away_wait_and_move_to_their_level_later(
    own: RealKafka, frozen: RealKafka, shop_at: ShopAt
) -> None:
    """One broker is killed and started again, the other answers nothing meanwhile."""
    shops = {shop_at(own, 2): "classic", shop_at(frozen, 2): "consumer"}
    go_on = Event()

    def behave(record: Record) -> None:
        go_on.wait(DEADLINE_S)
        if record.attempt == 1:
            raise ValueError("not at attempt 1")

    settings = {
        "ordering": "key",
        "retry": {"attempts": 1, "levels": ["300ms"], "on_failure": "overtake"},
        "breaker": dict(CALM),
    }
    with ExitStack() as running:
        for shop, protocol in shops.items():
            kafka = {**protocol_settings(protocol, may_die=True), "producer": IMPATIENT}
            if protocol == "classic":
                kafka["session.timeout.ms"] = 60_000
            shop.behave = behave
            running.enter_context(shop.running(kafka=kafka, concurrency=20, **settings))
            shop.until_said("reads 4 partitions")
            shop.produce(range(20), keys=20)
            shop.until_called(20)
            shop.until_committed_at({0: 0, 1: 0})
        with away(own.kill, own.restart), away(frozen.pause, frozen.resume):
            go_on.set()
            for shop in shops:
                shop.until_logged(LogEvent.COPY_REFUSED)
        for shop in shops:
            shop.until(RetryTopics.of(shop, "300ms").are_drained, "source and level are committed")
    for shop in shops:
        assert RetryTopics.of(shop, "300ms").violations(shop, OneAtATimePerKey()) == []
        assert not shop.dead_letters()


# ---- what an older or stricter broker does


def test_a_broker_without_the_consumer_protocol_gets_classic_members(
    own: RealKafka, shop_at: ShopAt
) -> None:
    orders = shop_at(own, 2)
    orders.produce(range(20))
    with orders.running():
        orders.until_committed()
    assert len(orders.log.of(LogEvent.PROTOCOL_DOWNGRADED)) == 1
    assert orders.violations(NoDuplicates()) == []


def test_metadata_that_is_too_large_for_the_broker_is_cut(own: RealKafka, shop_at: ShopAt) -> None:
    """Every other record is stuck: its ranges do not fit into 100 bytes."""
    orders = shop_at(own)
    orders.behave = fails_on(*(b"%d" % n for n in range(0, 1000, 2)))
    orders.produce(range(1000))
    with orders.running(
        retry={"backoff": "2s..2s", "attempts": 2},
        breaker={"enabled": False},
        kafka=protocol_settings("classic", may_die=True),
    ):
        orders.until_said("OFFSET_METADATA_TOO_LARGE")
        orders.until(lambda: bool(orders.metadata()), "a commit that fits")
        orders.until_committed()
    assert len(orders.dead_letters()) == 500
    assert orders.violations(copies=True) == []


# ---- what can only be provoked


@pytest.fixture
def provoked(tmp_path: Path) -> Iterator[tuple[EmbeddedBroker, Shop]]:
    with EmbeddedBroker(brokers=2, topics={"orders": 2}) as broker:
        broker.set_coordinator("shop", 1)
        yield broker, Shop(broker.client_settings(), "orders", "shop", tmp_path)


@pytest.mark.parametrize(
    "code",
    [
        ErrorCode.REBALANCE_IN_PROGRESS,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.REQUEST_TIMED_OUT,
        ErrorCode.NOT_COORDINATOR,
        ErrorCode.OFFSET_METADATA_TOO_LARGE,
        ErrorCode.GROUP_AUTHORIZATION_FAILED,
        ErrorCode.DISCONNECT,
    ],
)
def test_commits_that_are_refused_are_made_again(
    provoked: tuple[EmbeddedBroker, Shop], code: ErrorCode
) -> None:
    broker, orders = provoked
    with orders.running():
        orders.until_reading()
        orders.until_committed()
        broker.push_request_errors(ApiKey.OFFSET_COMMIT, code, code, code)
        broker.fill("orders", [NewRecord(b"%d" % n) for n in range(100)])
        orders.until_called(100)
        orders.until_committed()
    assert len(set(orders.places())) == len(orders.calls) == 100


def test_partitions_whose_offsets_could_not_be_read_at_once_are_read_and_named_later(
    provoked: tuple[EmbeddedBroker, Shop],
) -> None:
    broker, orders = provoked
    refusal = ErrorCode.GROUP_AUTHORIZATION_FAILED
    # The first one answers whether the coordinator is there at all.
    broker.push_request_errors(ApiKey.OFFSET_FETCH, refusal, refusal)
    broker.fill("orders", [NewRecord(b"%d" % n) for n in range(100)])
    with orders.running():
        orders.until_logged(LogEvent.PARTITION_POSTPONED)
        orders.until_reading()
        orders.until_called(100)
        orders.until_committed()
    *_, named = orders.log.of(LogEvent.PARTITIONS_ASSIGNED)
    (delayed,) = orders.log.of(LogEvent.PARTITION_POSTPONED)
    assert orders.log.lines.index(delayed) < orders.log.lines.index(named)
    assert len(set(orders.places())) == len(orders.calls) == 100


def test_a_coordinator_that_moves_is_followed(provoked: tuple[EmbeddedBroker, Shop]) -> None:
    broker, orders = provoked
    sent: list[Any] = []

    def write(count: int) -> None:
        sent.append(broker.fill("orders", [NewRecord(b"%d" % n) for n in range(count)]))

    with orders.running():
        orders.until_reading()
        write(100)
        orders.until_committed()
        broker.set_coordinator("shop", 2)
        write(100)
        orders.until_called(200)
        orders.until_committed()
        broker.push_request_errors(
            ApiKey.CONSUMER_GROUP_HEARTBEAT, *[ErrorCode.NOT_COORDINATOR] * 3
        )
        broker.push_request_errors(ApiKey.OFFSET_COMMIT, *[ErrorCode.NOT_COORDINATOR] * 3)
        broker.set_coordinator("shop", 1)
        write(100)
        orders.until_called(300)
        orders.until_committed()
    assert len(set(orders.places())) == 300
