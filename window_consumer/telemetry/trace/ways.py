"""Which way out there is: straight to Kafka, or through a spool."""

from __future__ import annotations

import logging
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Final, Literal

from window_consumer.kafka.event_writer import EventWriter
from window_consumer.telemetry.trace.kafka_way import KafkaWay
from window_consumer.telemetry.trace.shipping import Shipping
from window_consumer.telemetry.trace.spool import Orphans, Spool
from window_consumer.telemetry.trace.spool_way import SpoolWay
from window_consumer.telemetry.trace.way import Way

CLIENT_ID: Final = "wc-trace"

Acks = Literal["0", "1", "all"]


def way_out(  # noqa: PLR0913 - the keys of the configuration
    make_writer: Callable[[Acks], EventWriter],
    topic: str,
    logger: logging.Logger,
    *,
    acks: Acks,
    directory: Path | None,
    max_bytes: int,
    ship_after_s: float,
) -> Way:
    """Return the way out: through files where there is a directory, whose batches all must ack."""
    if directory is None:
        return KafkaWay(make_writer(acks), topic, logger)
    spool = Spool(directory, max_bytes, logger)
    orphans = Orphans(directory, logger)
    shipping = Shipping(spool.finished, orphans, partial(make_writer, "all"), topic, logger)
    return SpoolWay(spool, shipping, ship_after_s)
