"""What FastStream has and a worker has not is refused by name."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from types import ModuleType
from typing import Any

import pytest
from aiokafka.abc import ConsumerRebalanceListener
from faststream import AckPolicy, confluent, kafka

from window_consumer import UsageError
from window_consumer.faststream import worker_of
from window_consumer.faststream.refused import refuse_version


async def bill(body: Any) -> None:
    """Do nothing."""


def subscribed(module: ModuleType, *topics: str, **options: Any) -> Any:
    broker = module.KafkaBroker("nowhere:9092", logger=None)
    broker.subscriber(*topics, group_id="shop", **options)(bill)
    return broker


class Listener(ConsumerRebalanceListener):
    """Notes nothing."""

    def on_partitions_revoked(self, revoked: Any) -> None: ...

    def on_partitions_assigned(self, assigned: Any) -> None: ...


@pytest.mark.parametrize(
    ("named", "broker"),
    [
        (
            "partitions=",
            lambda: subscribed(
                confluent, partitions=[confluent.TopicPartition("orders", partition=0)]
            ),
        ),
        ("partitions=", lambda: subscribed(kafka, partitions=[kafka.TopicPartition("orders", 0)])),
        ("pattern=", lambda: subscribed(kafka, pattern="orders.*")),
        ("listener=", lambda: subscribed(kafka, "orders", listener=Listener())),
        ("AckPolicy.MANUAL", lambda: subscribed(confluent, "orders", ack_policy=AckPolicy.MANUAL)),
        ("AckPolicy.MANUAL", lambda: subscribed(kafka, "orders", ack_policy=AckPolicy.MANUAL)),
        ("builtins.object", object),
        ("@broker.subscriber", lambda: confluent.KafkaBroker("nowhere:9092")),
    ],
)
def test_an_error_names_the_option(named: str, broker: Callable[[], Any]) -> None:
    given = broker()
    with pytest.raises(UsageError) as caught:
        worker_of(given)
    assert named in str(caught.value)


def test_an_error_names_the_function_and_all_of_its_options() -> None:
    broker = subscribed(kafka, pattern="orders.*", ack_policy=AckPolicy.MANUAL)
    with pytest.raises(UsageError) as caught:
        worker_of(broker)
    lines = str(caught.value).splitlines()
    assert len(lines) == 2
    assert all("bill" in line for line in lines)


def test_a_refused_broker_is_left_as_it_was() -> None:
    broker = subscribed(kafka, pattern="orders.*")
    before = broker.config.broker_config.producer, list(broker.middlewares)
    with pytest.raises(UsageError):
        worker_of(broker)
    assert (broker.config.broker_config.producer, list(broker.middlewares)) == before


@pytest.mark.parametrize("found", ["0.6.9", "0.70.1", "0.8.0", "1.0.0"])
def test_another_version_of_faststream_is_refused(found: str) -> None:
    with pytest.raises(UsageError) as caught:
        refuse_version(found)
    assert found in str(caught.value)
    refuse_version("0.7.8")


def test_a_broker_that_faststream_runs_is_refused() -> None:
    broker = subscribed(confluent, "orders")

    broker.running = True
    with pytest.raises(UsageError):
        worker_of(broker)


def test_a_missing_package_is_named_with_its_extra() -> None:
    script = r"""
import sys
sys.modules["faststream"] = None
import pytest
from window_consumer import UsageError
with pytest.raises(UsageError, match=r"window-consumer\[faststream\]"):
    import window_consumer.faststream
"""
    assert subprocess.run([sys.executable, "-c", script], check=False, timeout=60).returncode == 0
