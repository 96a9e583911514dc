"""Exactly once on a real Kafka: results, copies and offsets in one transaction."""

from __future__ import annotations

import json
import signal
from collections import Counter
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import pytest
import sqlalchemy as sa
from confluent_kafka.admin import AdminClient, NewTopic

from tests import reading, topics
from tests.commands import Command, Commands
from tests.commands import produce as write
from tests.conftest import MakeTopic
from tests.integration import once_member
from tests.integration.conftest import ShopOn, protocol_settings
from tests.integration.members import SHORT_MS, Members, produce, set_session
from tests.integration.retry_topics import RetryTopics
from tests.integration.shop import DEADLINE_S
from tests.waiting import wait_until
from window_consumer import App, Produce, Record
from window_consumer.kafka.embedded import EmbeddedBroker
from window_consumer.model.errors import ConfigError, Fatal
from window_consumer.model.log_events import LogEvent
from window_consumer.testing.real_kafka import RealKafka

RECORDS = 600
KILLS = 2
ONCE_MEMBER = "tests.integration.once_member:app"


def test_each_record_has_one_result_or_one_dead_letter(shop: ShopOn, protocol: str) -> None:
    orders = shop(3)
    invoices = f"{orders.group}.invoices"
    orders.create_topic(invoices, 2)

    def bill(order: Record) -> Produce:
        if int(order.value or b"") % 50 == 7:
            raise Fatal("no such customer")
        return Produce(invoices, order.key, order.value)

    orders.behave = bill
    orders.produce(range(RECORDS), keys=30)
    settings = protocol_settings(protocol)
    retry = {"attempts": 1, "on_failure": "overtake"}
    with orders.running(
        kafka=settings, delivery="exactly_once", ordering="key", retry=retry
    ) as running:
        orders.until_committed()
        assert running.counters["work"].dead_lettered == RECORDS // 50
    results = reading.read_all(orders.plain, invoices)
    by_key: dict[bytes, list[int]] = {}
    for message in results:
        by_key.setdefault(message.key(), []).append(int(message.value()))
    assert all(each == sorted(each) for each in by_key.values())
    written = [int(each.value()) for each in (*results, *orders.dead_letters())]
    assert Counter(written) == Counter(range(RECORDS))
    assert orders.log.of(LogEvent.TRANSACTION_ABORTED) == []
    assert orders.violations(copies=True) == []


def test_a_record_with_a_refused_result_becomes_a_dead_letter_and_nothing_is_written_twice(
    shop: ShopOn,
) -> None:
    orders = shop(1)
    invoices = f"{orders.group}.invoices"
    orders.create_topic(invoices, 2, {"max.message.bytes": "3000"})

    def bill(order: Record) -> list[Produce]:
        value = b"x" * 5_000 if order.value == b"77" else order.value
        return [Produce(invoices, order.key, b"first"), Produce(invoices, order.key, value)]

    orders.behave = bill
    orders.produce(range(160), keys=20)
    with orders.running(delivery="exactly_once", retry={"attempts": 1}):
        orders.until_committed()
    assert orders.log.of(LogEvent.TRANSACTION_ABORTED)
    values = Counter(message.value() for message in reading.read_all(orders.plain, invoices))
    assert values.pop(b"first") == 159
    assert values == Counter(b"%d" % number for number in range(160) if number != 77)
    (letter,) = orders.dead_letters()
    assert letter.value() == b"77"


BILLING = """
import os

from window_consumer import App, Produce

app = App("shop")


@app.handler("orders", delivery="exactly_once", name="bill")
def bill(order):
    return Produce(os.environ["INVOICES"], order.key, order.value)
"""


def test_a_second_process_with_the_same_id_stops_one_of_the_two_with_the_cause(
    kafka: RealKafka, make_topic: MakeTopic, unique_name: Callable[[str], str], commands: Commands
) -> None:
    orders, invoices = make_topic("orders", 2), make_topic("invoices", 2)
    group, plain = unique_name("shop"), {"bootstrap.servers": kafka.bootstrap}
    commands.application(BILLING)
    worker = {"topics": [orders], "group": group}
    commands.configure({"kafka": plain, "workers": {"bill": worker}})
    running = [commands.start("run", "shop:app", env={"INVOICES": invoices}) for _ in range(2)]
    written = 0

    def stopped() -> list[Command]:
        nonlocal written
        write(kafka.bootstrap, orders, b"%d" % written)
        written += 1
        return [each for each in running if each.process.poll() is not None]

    wait_until(stopped, DEADLINE_S, "one of the two stops")
    (first,) = stopped()
    ended = first.wait()
    assert ended.code == 1
    assert f"transactional.id {group}-bill-" in ended.line_of(LogEvent.WORKER_FAILED)["message"]
    (other,) = (each for each in running if each is not first)
    numbers = Counter(str(each).encode() for each in range(written))

    def results() -> Counter[bytes | None]:
        return Counter(each.value() for each in reading.read_all(plain, invoices))

    wait_until(lambda: results() == numbers, DEADLINE_S, "the other one has billed all, once")
    assert other.stop().code == 0
    assert results() == numbers


def test_after_a_topic_was_recreated_each_of_its_records_has_one_result(shop: ShopOn) -> None:
    orders = shop(2)
    invoices = f"{orders.group}.invoices"
    orders.create_topic(invoices, 2)
    orders.behave = lambda order: Produce(invoices, order.key, order.value)
    orders.produce(range(100))
    with orders.running(delivery="exactly_once"):
        orders.until_committed()
        topics.make_anew(AdminClient(orders.plain), NewTopic(orders.topic, 2, 1))
        orders.produce(range(100, 150))
        orders.until_logged(LogEvent.TOPIC_RECREATED)
        orders.until_committed()
        assert sum(orders.ends().values()) == sum(orders.committed().values())
    with orders.running(delivery="exactly_once"):
        orders.produce(range(150, 160))
        orders.until_committed()
    written = [int(each.value() or b"") for each in reading.read_all(orders.plain, invoices)]
    assert Counter(written) == Counter(range(160))


def test_two_workers_of_a_process_pass_each_record_on_once(
    kafka: RealKafka, make_topic: MakeTopic, unique_name: Callable[[str], str], tmp_path: Path
) -> None:
    orders, bills, letters = (make_topic(name, 2) for name in ("orders", "bills", "letters"))
    plain = {"bootstrap.servers": kafka.bootstrap}
    app, failed = App("shop"), set[bytes | None]()

    def bill(order: Record) -> Produce:
        if order.value and int(order.value) % 20 == 7 and order.value not in failed:
            failed.add(order.value)
            raise ValueError("not yet")
        return Produce(bills, order.key, order.value)

    group = unique_name("shop")
    app.handler(orders, group=group, delivery="exactly_once")(bill)
    app.handler(bills, group=group, name="send", delivery="exactly_once")(
        lambda bill: Produce(letters, bill.key, bill.value)
    )
    file = tmp_path / "workers.yaml"
    file.write_text(json.dumps({"kafka": plain, "workers": {"bill": {}, "send": {}}}))
    produce(kafka.bootstrap, orders, 100, 10)
    numbers = Counter(b"%d" % each for each in range(100))

    def results() -> Counter[bytes | None]:
        return Counter(each.value() for each in reading.read_all(plain, letters))

    with app.start(file, start_timeout=DEADLINE_S):
        wait_until(lambda: results() == numbers, DEADLINE_S, "all letters are there")
    assert results() == numbers
    assert len(failed) == 5


@pytest.fixture
def members(
    kafka: RealKafka, make_topic: MakeTopic, unique_name: Callable[[str], str], tmp_path: Path
) -> Iterator[Members]:
    retry = {"attempts": 1, "levels": ["300ms"], "on_failure": "overtake"}
    worker = {
        "delivery": "exactly_once",
        "ordering": "key",
        "concurrency": 4,
        "retry": retry,
        "kafka": protocol_settings("consumer"),
    }
    group = unique_name("once")
    members = Members(kafka.bootstrap, make_topic("orders", 2), group, tmp_path, worker, 0.005)
    set_session(kafka.bootstrap, group, SHORT_MS)
    yield members
    members.kill_all()


def has_called(members: Members, calls: int) -> bool:
    return members.calls() > calls


def test_with_once_kills_repeat_no_effect_no_result_and_no_copy(members: Members) -> None:
    database = once_member.engine_in(members.directory)
    once_member.metadata.create_all(database)
    topics = RetryTopics(
        {"bootstrap.servers": members.bootstrap}, members.group, members.topic, ("300ms",)
    )
    produce(members.bootstrap, members.topic, RECORDS, 30)
    member = members.start(ONCE_MEMBER)
    for kill in range(KILLS):
        done = RECORDS * (kill + 1) // (KILLS + 1)
        wait_until(partial(has_called, members, done), DEADLINE_S, "its calls")
        members.kill(member)
        member = members.start(ONCE_MEMBER)
    wait_until(topics.are_drained, DEADLINE_S, "source and level are committed")
    assert set(members.stop_all()) == {0, -signal.SIGKILL}
    numbers = range(RECORDS)
    good = Counter(str(each) for each in numbers if not once_member.fails_for_good(each))
    with database.connect() as connection:
        results = connection.scalars(sa.select(once_member.outbox.table.c.payload))
        assert Counter(each.decode() for each in results) == good
        effects = connection.scalars(sa.select(once_member.effects.c.value))
        assert Counter(effects) == good
    database.dispose()
    copies = Counter(int(each.value() or b"") for each in topics.copies("300ms"))
    assert copies == Counter(filter(once_member.fails_at_first, numbers))
    letters = Counter(int(each.value() or b"") for each in topics.dead_letters())
    assert letters == Counter(filter(once_member.fails_for_good, numbers))


def test_the_embedded_broker_is_refused(tmp_path: Path) -> None:
    app = App("shop")
    app.handler("orders", group="shop", name="charge", delivery="exactly_once")(lambda _: None)
    with EmbeddedBroker(topics={"orders": 1}) as broker:
        file = tmp_path / "workers.yaml"
        file.write_text(
            f"kafka: {{bootstrap.servers: '{broker.bootstrap}'}}\nworkers: {{charge: {{}}}}"
        )
        with pytest.raises(ConfigError, match=r"workers\.charge\.delivery"):
            app.start(file)
