"""The Kafka that a benchmark runs on."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from benchmarks.topics import Say
from window_consumer.testing.real_kafka import RealKafka
from window_consumer.testing.real_kafka_jars import KAFKA_VERSION


@contextmanager
def kafka_at(address: str | None, say: Say) -> Iterator[tuple[str, str]]:
    """Yield a Kafka's address and description; start one where no address is given."""
    if address:
        yield address, f"at {address}"
        return
    say("starting Kafka")
    with (
        tempfile.TemporaryDirectory(prefix="wc-bench-") as directory,
        RealKafka.start(Path(directory), short_lived=False) as kafka,
    ):
        yield kafka.bootstrap, f"{KAFKA_VERSION}, started for this"
