"""``dev`` with a real Kafka: it creates missing topics if the configuration allows that."""

from __future__ import annotations

import uuid

from confluent_kafka.admin import AdminClient

from tests.commands import Commands, produce
from tests.dev.conftest import Dev, shop
from window_consumer.testing.real_kafka import RealKafka


def test_the_cluster_of_the_configuration_gets_the_topic_once_that_is_allowed(
    kafka: RealKafka, commands: Commands
) -> None:
    topic = f"orders-{uuid.uuid4().hex[:8]}"
    group = {"group": f"shop-{topic}", "retry": {"attempts": 1, "when_spent": "drop"}}
    config = {"kafka": {"bootstrap.servers": kafka.bootstrap}, "workers": {"charge": group}}
    commands.application(shop("one").replace("orders", topic))
    commands.configure({**config, "topics": {"create": False}})
    dev = Dev(commands, commands.start("dev", "shop:app", "--cluster", "--no-open"))
    dev.command.wait_for("exit code 2")
    commands.configure(config)
    dev.wait_for_status(200)
    produce(kafka.bootstrap, topic, b"a")
    dev.command.wait_for("one a 0")
    assert dev.command.stop().code == 0
    found = AdminClient({"bootstrap.servers": kafka.bootstrap}).list_topics(timeout=30).topics
    assert len(found[topic].partitions) == 4
