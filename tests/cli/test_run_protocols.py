"""The group protocol that a worker uses, and what happens where the broker does not have it."""

from __future__ import annotations

from tests.applications import SHOP
from tests.commands import Commands
from window_consumer.kafka.embedded import ApiKey, EmbeddedBroker
from window_consumer.model.log_events import LogEvent


def test_a_broker_without_the_consumer_protocol_is_joined_with_classic(
    commands: Commands, embedded: EmbeddedBroker
) -> None:
    embedded.disable_api(ApiKey.CONSUMER_GROUP_HEARTBEAT)
    embedded.create_topic("orders", 1)
    embedded.produce("orders", b"first")
    commands.application(SHOP)
    commands.configure(
        {"kafka": {"bootstrap.servers": embedded.bootstrap}, "workers": {"charge": {}}}
    )
    running = commands.start("run", "shop:app")
    running.wait_for("charged first")
    ended = running.stop()
    assert ended.code == 0
    assert "classic" in ended.line_of(LogEvent.PROTOCOL_DOWNGRADED)["message"]


def test_a_protocol_that_was_chosen_is_not_replaced(
    commands: Commands, embedded: EmbeddedBroker
) -> None:
    embedded.disable_api(ApiKey.CONSUMER_GROUP_HEARTBEAT)
    embedded.create_topic("orders", 1)
    commands.application(SHOP)
    client = {"bootstrap.servers": embedded.bootstrap, "group.protocol": "consumer"}
    commands.configure({"kafka": client, "workers": {"charge": {}}})
    ended = commands.run("run", "shop:app")
    assert ended.code == 1
    failure = ended.line_of(LogEvent.WORKER_FAILED, worker="charge")
    assert "group.protocol: consumer" in failure["message"]
