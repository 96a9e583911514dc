"""Consume Kafka with a sliding window: slow handlers run concurrently, nothing is lost.

``App`` collects handlers and starts workers. A handler gets a ``Record`` and may raise ``Fatal``,
``RetryLater`` or ``Skip`` on purpose.
"""

from __future__ import annotations

from window_consumer.app.application import App
from window_consumer.model.conditions import Condition, header, key, timestamp, topic
from window_consumer.model.errors import (
    AuthenticationError,
    BrokerUnavailableError,
    ConfigError,
    Fatal,
    LifespanError,
    MissingTopicError,
    NotPermittedError,
    PartialFailure,
    ResultRefusedError,
    RetryLater,
    RunError,
    Skip,
    Undecodable,
    UsageError,
    WindowConsumerError,
    WorkerStoppedError,
)
from window_consumer.model.produce import Produce
from window_consumer.model.record import Record
from window_consumer.model.record_identity import RecordOrigin
from window_consumer.producer import Producer, SendFuture, SendResult
from window_consumer.runtime.context import RecordContext, current_record
from window_consumer.runtime.running import Running
from window_consumer.trace.traced_producer import TracedProducer, TraceSettings

__version__ = "0.1.0"

__all__ = [
    "App",
    "AuthenticationError",
    "BrokerUnavailableError",
    "Condition",
    "ConfigError",
    "Fatal",
    "LifespanError",
    "MissingTopicError",
    "NotPermittedError",
    "PartialFailure",
    "Produce",
    "Producer",
    "Record",
    "RecordContext",
    "RecordOrigin",
    "ResultRefusedError",
    "RetryLater",
    "RunError",
    "Running",
    "SendFuture",
    "SendResult",
    "Skip",
    "TraceSettings",
    "TracedProducer",
    "Undecodable",
    "UsageError",
    "WindowConsumerError",
    "WorkerStoppedError",
    "__version__",
    "current_record",
    "header",
    "key",
    "timestamp",
    "topic",
]
