"""Clients of Amazon SQS, the command line, and Kafka behind it."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import boto3
import pytest

from tests.commands import Commands, kafka_of, produce
from tests.conftest import MakeTopic
from tests.sqs.celery_program import DEADLINE_S, CeleryProgram
from tests.sqs.endpoint import ACCESS_KEY, SECRET
from window_consumer.kafka.embedded import EmbeddedBroker
from window_consumer.model.log_events import LogEvent
from window_consumer.testing.real_kafka import RealKafka

SQS = {"listen": "127.0.0.1:0", "credentials": {ACCESS_KEY: "${SHOP_SECRET}"}}
ENVIRONMENT = {"SHOP_SECRET": SECRET}
PULL = {"visibility_timeout": "30s"}


def client_of(url: str) -> Any:
    return boto3.client(
        "sqs",
        endpoint_url=url,
        region_name="eu-west-1",
        aws_access_key_id=ACCESS_KEY,
        aws_secret_access_key=SECRET,
    )


def wait_until_empty(client: Any, name: str) -> None:
    """Wait until nothing waits in a queue, and nothing is leased."""
    url = client.get_queue_url(QueueName=name)["QueueUrl"]
    names = ["ApproximateNumberOfMessages", "ApproximateNumberOfMessagesNotVisible"]
    deadline = time.monotonic() + DEADLINE_S
    while True:
        found = client.get_queue_attributes(QueueUrl=url, AttributeNames=names)["Attributes"]
        if set(found.values()) == {"0"}:
            return
        assert time.monotonic() < deadline, found
        time.sleep(0.1)


def redrive_policy_of(client: Any, name: str) -> dict[str, Any]:
    url = client.get_queue_url(QueueName=name)["QueueUrl"]
    found = client.get_queue_attributes(QueueUrl=url, AttributeNames=["RedrivePolicy"])
    policy: dict[str, Any] = json.loads(found.get("Attributes", {}).get("RedrivePolicy", "{}"))
    return policy


def test_tasks_of_celery_go_through_topics(
    commands: Commands, embedded: EmbeddedBroker, tmp_path: Path
) -> None:
    workers = {
        "orders": {"topics": ["orders"], "group": "shop-orders", "pull": PULL},
        "mails": {"topics": ["mails"], "group": "shop-mails", "ordering": "key", "pull": PULL},
    }
    for topic in ("orders", "mails"):
        embedded.create_topic(topic, 3)
    commands.configure({"kafka": kafka_of(embedded), "sqs": SQS, "workers": workers})
    running = commands.start("run", "-c", "workers.yaml", env=ENVIRONMENT)
    url = running.wait_for_event(LogEvent.SQS_STARTED)["url"]
    celery, client = CeleryProgram(url, tmp_path), client_of(url)
    celery.send_tasks()
    with celery.working():
        done = tmp_path / "done"
        deadline = time.monotonic() + DEADLINE_S
        while not done.exists() or len(done.read_text().splitlines()) < 20:
            assert time.monotonic() < deadline
            time.sleep(0.05)
        wait_until_empty(client, "orders")
        wait_until_empty(client, "mails.fifo")
    celery.check_all_done()
    policies = [redrive_policy_of(client, name) for name in ("orders", "mails.fifo")]
    assert [each.get("maxReceiveCount") for each in policies] == [3, None]
    ended = running.stop()
    assert ended.code == 0
    assert (ended.summary("orders"), ended.summary("mails")) == (
        {"processed": 12},
        {"processed": 8},
    )
    assert SECRET not in ended.said


@pytest.mark.timeout(120)
def test_a_consumer_of_boto3_reads_a_topic_and_sends_to_it(
    commands: Commands, kafka: RealKafka, make_topic: MakeTopic, unique_name: Callable[[str], str]
) -> None:
    topic, group = make_topic("orders", 2), unique_name("shop")
    workers = {"orders": {"topics": [topic], "group": group, "pull": PULL}}
    bootstrap = {"bootstrap.servers": kafka.bootstrap}
    commands.configure({"kafka": bootstrap, "sqs": SQS, "workers": workers})
    produce(kafka.bootstrap, topic, *(str(number).encode() for number in range(30)))
    running = commands.start("run", "-c", "workers.yaml", env=ENVIRONMENT)
    client = client_of(running.wait_for_event(LogEvent.SQS_STARTED)["url"])
    queue = client.get_queue_url(QueueName="orders")["QueueUrl"]
    sent = client.send_message_batch(
        QueueUrl=queue, Entries=[{"Id": str(n), "MessageBody": str(n)} for n in range(30, 40)]
    )
    assert len(sent["Successful"]) == 10
    found: list[str] = []
    while len(found) < 40:
        messages = client.receive_message(
            QueueUrl=queue, MaxNumberOfMessages=10, WaitTimeSeconds=20
        ).get("Messages", [])
        found += [each["Body"] for each in messages]
        handles = [each["ReceiptHandle"] for each in messages]
        entries = [{"Id": str(n), "ReceiptHandle": each} for n, each in enumerate(handles)]
        if entries:
            deleted = client.delete_message_batch(QueueUrl=queue, Entries=entries)
            assert deleted["Failed"] == []
    assert sorted(map(int, found)) == list(range(40))
    wait_until_empty(client, "orders")
    ended = running.stop()
    assert (ended.code, ended.summary()) == (0, {"processed": 40})
