"""The test kit: your application without Kafka, brokers, a clock, guarantees, the simulator.

Tests of an application mostly need ``TestApp`` (with pytest: the fixture ``wc_app``) and
``EmbeddedBroker``. Import the other parts from their modules.
"""

from __future__ import annotations

from window_consumer.kafka.embedded import EmbeddedBroker, NewRecord
from window_consumer.testing.application import TestApp
from window_consumer.testing.journal import (
    DEAD_LETTERED,
    DONE,
    DROPPED,
    EXPIRED,
    MOVED,
    RETRYING,
    SKIPPED,
    WAITING,
    Handling,
    Sent,
    SentState,
)
from window_consumer.testing.records import make_record

DEDUPLICATED = SentState["DEDUPLICATED"]

__all__ = [
    "DEAD_LETTERED",
    "DEDUPLICATED",
    "DONE",
    "DROPPED",
    "EXPIRED",
    "MOVED",
    "RETRYING",
    "SKIPPED",
    "WAITING",
    "EmbeddedBroker",
    "Handling",
    "NewRecord",
    "Sent",
    "SentState",
    "TestApp",
    "make_record",
]
