"""The archive of Kafka's classes, from which the tests' Kafkas start.

Java reads and verifies some 8,000 classes before Kafka answers; it maps an archive's into memory.
"""

from __future__ import annotations

import subprocess
import tempfile
from pathlib import Path
from typing import Any

from confluent_kafka import Consumer, Producer
from confluent_kafka.admin import AdminClient, NewTopic

from tests import topics
from window_consumer.model.errors import RunError
from window_consumer.testing.real_kafka import RealKafka
from window_consumer.testing.real_kafka_jars import (
    archive_of,
    default_directory,
    fetch_jars,
    find_java,
)

_WAIT_S = 60.0


def make() -> Path:
    """Make the archive if it is missing; return its path. Raises as ``RealKafka.start``."""
    archive = archive_of(fetch_jars(default_directory().resolve()), find_java())
    if not archive.is_file():
        with tempfile.TemporaryDirectory(dir=archive.parent, prefix="archive-") as place:
            # A file that is cut off would crash Java.
            made = Path(place, archive.name)
            with RealKafka.start(
                Path(place), java_options=[f"-XX:ArchiveClassesAtExit={made}"]
            ) as kafka:
                _use(kafka)
                kafka.stop()  # Java writes the archive
            _check(made)
            made.replace(archive)
    return archive


def _check(archive: Path) -> None:
    """Raise RunError if an archive is not whole."""
    options = ["-Xshare:on", "-XX:+VerifySharedSpaces", f"-XX:SharedArchiveFile={archive}"]
    java = [find_java(), *options, "-cp", f"{fetch_jars(default_directory().resolve())}/*"]
    done = subprocess.run([*java, "-version"], capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise RunError(f"Java made no archive of Kafka's classes: {done.stdout}{done.stderr}")


def _use(kafka: RealKafka) -> None:
    """Let Kafka load the classes that most tests need: topics, transactions, groups, logins."""
    login: dict[str, Any] = {**kafka.sasl_settings("admin"), "log_level": 0}
    topics.make(AdminClient(login), NewTopic("orders", num_partitions=1, replication_factor=1))
    producer = Producer({**login, "transactional.id": "orders"})
    producer.init_transactions(_WAIT_S)
    producer.begin_transaction()
    producer.produce("orders", b"order")
    producer.commit_transaction(_WAIT_S)
    for protocol in ("classic", "consumer"):
        group = {"group.id": protocol, "group.protocol": protocol, "auto.offset.reset": "earliest"}
        consumer = Consumer({**login, **group, "enable.auto.commit": False})
        consumer.subscribe(["orders"])
        if consumer.poll(_WAIT_S) is not None:
            consumer.commit(asynchronous=False)
        consumer.close()
