"""Sending records: ``Producer``, its futures, and their errors."""

from __future__ import annotations

from window_consumer.producer.errors import (
    BufferFullError,
    InvalidRecordError,
    LoginRefusedError,
    MayHaveArrivedError,
    NeverSentError,
    NoSuchTopicError,
    ProducerClosedError,
    RefusedError,
    SendDeniedError,
    SendError,
    TooLargeError,
    TransactionAbortedError,
)
from window_consumer.producer.future import SendFuture, SendResult
from window_consumer.producer.producer import Producer

__all__ = [
    "BufferFullError",
    "InvalidRecordError",
    "LoginRefusedError",
    "MayHaveArrivedError",
    "NeverSentError",
    "NoSuchTopicError",
    "Producer",
    "ProducerClosedError",
    "RefusedError",
    "SendDeniedError",
    "SendError",
    "SendFuture",
    "SendResult",
    "TooLargeError",
    "TransactionAbortedError",
]
