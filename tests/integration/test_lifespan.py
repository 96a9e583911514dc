"""The lifespan's place in the order of an end, seen from the cluster."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.commands import Commands
from tests.conftest import MakeTopic
from tests.integration.members import produce
from window_consumer.testing.real_kafka import RealKafka

SHOP = """
import os
import time

from confluent_kafka.admin import AdminClient

from window_consumer import App, Record
from window_consumer.kafka.cluster.groups import committed_offsets

app = App("shop")
TOPIC, GROUP = os.environ["TOPIC"], os.environ["GROUP"]
CLIENT = {"bootstrap.servers": os.environ["BOOTSTRAP"]}


@app.handler(TOPIC, group=GROUP)
def charge(order: Record) -> None:
    print("charge\\n", end="", flush=True)
    while not os.path.exists("release"):
        time.sleep(0.01)
    print("charged\\n", end="", flush=True)


@app.lifespan
def pools():
    print("enter", members(), "members", flush=True)
    yield
    committed = committed_offsets(CLIENT, GROUP, TOPIC)
    print("leave", members(), "members,", committed, "committed", flush=True)


def members() -> int:
    groups = AdminClient(CLIENT)
    description = groups.describe_consumer_groups([GROUP])[GROUP]
    try:
        return len(description.result(30).members)
    except Exception as error:
        assert "GROUP_ID_NOT_FOUND" in str(error), error
        return 0
"""


@pytest.mark.parametrize("protocol", ["consumer", "classic"])
def test_the_lifespan_is_entered_before_joining_and_left_between_the_last_commit_and_leaving(
    kafka: RealKafka,
    commands: Commands,
    make_topic: MakeTopic,
    unique_name: Callable[[str], str],
    protocol: str,
) -> None:
    topic, group = make_topic("orders", 1), unique_name("shop")
    produce(kafka.bootstrap, topic, 3, 3)
    commands.application(SHOP)
    commands.configure(
        {
            "kafka": {"bootstrap.servers": kafka.bootstrap},
            "workers": {"charge": {"kafka": {"group.protocol": protocol}}},
        }
    )
    place = {"TOPIC": topic, "GROUP": group, "BOOTSTRAP": kafka.bootstrap}
    running = commands.start("run", "shop:app", env=place)
    running.wait_for("charge\n", times=3)
    (commands.directory / "release").touch()
    ended = running.stop()
    assert ended.code == 0, ended.err
    assert ended.out.splitlines() == [
        "enter 0 members",
        *["charge"] * 3,
        *["charged"] * 3,
        "leave 1 members, {0: 3} committed",
    ]
