"""``doctor`` on a real Kafka: what only its coordinator can tell."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from confluent_kafka import Producer

from tests.conftest import ConsumerOf, MakeTopic
from window_consumer.cli.main import cli
from window_consumer.cli.output import guarded
from window_consumer.testing.real_kafka import RealKafka


def test_a_group_whose_members_have_left_is_reported(
    kafka: RealKafka,
    make_topic: MakeTopic,
    unique_name: Callable[[str], str],
    consumer_of: ConsumerOf,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    topic, group = make_topic("orders", 1), unique_name("shop")
    client = {"bootstrap.servers": kafka.bootstrap}
    producer = Producer(client)
    for _ in range(5):
        producer.produce(topic, b"v")
    assert producer.flush(30) == 0
    with consumer_of(client, **{"group.id": group}) as consumer:
        consumer.subscribe([topic])
        while not (found := consumer.consume(1, 0.1)):
            pass
        consumer.commit(message=found[0], asynchronous=False)
    config = tmp_path / "workers.yaml"
    config.write_text(
        f"kafka: {{bootstrap.servers: '{kafka.bootstrap}'}}\n"
        f"workers: {{charge: {{group: {group}, topics: [{topic}], ordering: unordered}}}}\n"
    )
    asked = ["doctor", "-c", str(config), "--for", "2s"]
    code = guarded(lambda: int(cli.main(asked, standalone_mode=False) or 0))
    said = capsys.readouterr().out
    assert code == 3, said
    first = said.splitlines()[0]
    assert first.startswith("charge: ")
    assert " no members" in first
    assert " 4 records " in first
