"""A process of a queue is killed while its clients hold leases."""

from __future__ import annotations

import signal
from collections.abc import Callable
from typing import Any

import boto3
import pytest

from tests.commands import Command, Commands, produce
from tests.conftest import MakeTopic
from window_consumer.model.log_events import LogEvent
from window_consumer.testing.real_kafka import RealKafka

RECORDS = 20


class Client:
    """A client of Amazon's of one process."""

    def __init__(self, running: Command):
        url = running.wait_for_event(LogEvent.SQS_STARTED)["url"]
        self.api: Any = boto3.client(
            "sqs",
            endpoint_url=url,
            region_name="kafka",
            aws_access_key_id="shop",
            aws_secret_access_key="unused",  # noqa: S106 - nothing checks it
        )
        self.queue = self.api.get_queue_url(QueueName="orders")["QueueUrl"]

    def receive_all(self) -> dict[str, str]:
        """Return receipt handles by the ids of their messages."""
        found: dict[str, str] = {}
        while len(found) < RECORDS:
            answer = self.api.receive_message(
                QueueUrl=self.queue, MaxNumberOfMessages=10, WaitTimeSeconds=20
            )
            messages = answer.get("Messages", [])
            found |= {each["MessageId"]: each["ReceiptHandle"] for each in messages}
        return found

    def delete(self, handle: str) -> None:
        self.api.delete_message(QueueUrl=self.queue, ReceiptHandle=handle)


def test_its_records_are_received_from_another_one_which_refuses_its_handles(
    commands: Commands, kafka: RealKafka, make_topic: MakeTopic, unique_name: Callable[[str], str]
) -> None:
    topic, group = make_topic("orders", 2), unique_name("shop")
    worker = {"topics": [topic], "group": group, "pull": {"visibility_timeout": "10m"}}
    client = {"group.protocol": "classic", "session.timeout.ms": 6000}
    for name in ("a", "b"):
        config = {
            "kafka": {"bootstrap.servers": kafka.bootstrap, "consumer": client},
            "sqs": {"listen": "127.0.0.1:0", "advertise": f"http://{name}:9324"},
            "workers": {"orders": worker},
        }
        commands.configure(config, f"{name}.yaml")
    produce(kafka.bootstrap, topic, *(b"%d" % number for number in range(RECORDS)))
    killed = commands.start("run", "-c", "a.yaml")
    lost = Client(killed).receive_all()
    killed.signal(signal.SIGKILL)
    killed.wait()
    running = commands.start("run", "-c", "b.yaml")
    heir = Client(running)
    again = heir.receive_all()
    assert again.keys() == lost.keys()
    for handle in lost.values():
        with pytest.raises(heir.api.exceptions.ReceiptHandleIsInvalid, match="http://a:9324"):
            heir.delete(handle)
    for handle in again.values():
        heir.delete(handle)
    ended = running.stop()
    assert (ended.code, ended.summary()) == (0, {"processed": RECORDS})
