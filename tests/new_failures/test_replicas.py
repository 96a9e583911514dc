"""A new failure in several processes of one command: each is paused, one answer resumes all."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from confluent_kafka import Producer

from tests.admin.admin import MadeUpBoard, asking
from tests.commands import DEADLINE_S, Commands
from tests.conftest import MakeTopic
from tests.new_failures.shop import HANDLERS, SHOP, Version
from tests.reading import spans
from tests.waiting import wait_until
from window_consumer.model.log_events import LogEvent
from window_consumer.testing.real_kafka import RealKafka

EACH = 60
"""The records of each partition; every second call fails."""


def test_one_command_resumes_all_replicas(
    kafka: RealKafka, commands: Commands, make_topic: MakeTopic, unique_name: Callable[[str], str]
) -> None:
    topic, group = make_topic("orders", 2), unique_name("shop")
    client = {"bootstrap.servers": kafka.bootstrap, "log_level": 0}
    charge = {
        "topics": [topic],
        "group": group,
        "on_new_failure": {"action": "pause", "min_calls": 10, "share": "20%"},
        "retry": {"attempts": 1, "on_failure": "overtake"},
        "breaker": {"enabled": False},
    }
    handlers = HANDLERS["threads"].replace('"orders", group="shop"', "")
    commands.configure(
        {
            "kafka": {"bootstrap.servers": kafka.bootstrap},
            "workers": {"charge": charge},
            "admin": {"listen": "127.0.0.1:0"},
        }
    )
    commands.application(SHOP.format(version="2", bug="new_bug") + handlers)
    version = Version(commands.start("run", "shop:app", "--processes", "2"), commands)
    for process in (1, 2):
        version.command.wait_for_event(LogEvent.PARTITIONS_ASSIGNED, process=process, partitions=1)
    producer = Producer(client)
    for number in range(EACH):
        for partition in (0, 1):
            producer.produce(topic, b"good" if number % 2 else b"bad", b"%d" % number, partition)
    assert producer.flush(DEADLINE_S) == 0
    version.found(times=2)
    ended = version.resume()
    assert ended.code == 0, ended.said
    version.command.wait_for_event(LogEvent.NEW_FAILURE_ACCEPTED, times=2)
    dead_letters = f"{group}.{topic}.dlq"

    def count() -> int:
        return sum(each.count for each in spans(client, dead_letters).values())

    wait_until(lambda: count() == EACH)


@pytest.mark.parametrize(("late", "code", "asked"), [(0, 0, 1), (2, 0, 3), (9, 1, 3)])
def test_a_replica_that_answers_late_is_asked_again(
    late: int, code: int, asked: int, commands: Commands
) -> None:
    board = MadeUpBoard(late)
    with asking(board) as ask:
        url = f"http://127.0.0.1:{ask.port}"
        ended = commands.run("resume", "-w", "charge", "--url", url)
    assert ended.code == code, ended.said
    assert board.asked.count("charge None False") == asked
