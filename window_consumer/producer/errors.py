"""What a record that could not be sent failed with, and what a caller may do wrong."""

from __future__ import annotations

from window_consumer.model.errors import RunError, UsageError, WindowConsumerError


class SendError(WindowConsumerError):
    """The root of what futures of a Producer fail with."""

    refused = False
    """Whether the record was surely not written, and sending the same again cannot help."""


class RefusedError(SendError):
    """The brokers will never take this record, whenever it is sent."""

    refused = True


class TooLargeError(RefusedError):
    """The record alone is larger than its topic takes."""

    def __init__(self, topic: str, size: int, limit: int | None):
        known = "" if limit is None else f" of {limit}"
        super().__init__(
            f"a record of {size} bytes is larger than {topic} takes: make it smaller, or raise the"
            f" topic's max.message.bytes{known}"
        )
        self.topic = topic
        self.size = size
        """Bytes of key, value and headers, before compression."""
        self.limit = limit
        """The topic's ``max.message.bytes``; None where the brokers do not say."""


class SendDeniedError(RefusedError):
    """The producer may not write to the topic: an ACL is missing."""


class NoSuchTopicError(RefusedError):
    """The topic was missing for 60 s."""


class InvalidRecordError(RefusedError):
    """The brokers, or the client, take no such record: its name, timestamp or form is wrong."""


class LoginRefusedError(SendError):
    """The brokers refuse the producer's login, and have for 30 s; the record was not written."""


class NeverSentError(SendError):
    """The producer was closed before the record was sent: it is surely not written."""


class MayHaveArrivedError(SendError):
    """The producer was closed while the record was on its way: nobody knows whether it is written.

    Sending it again with the same ``wc-id`` is safe where consumers go by ids.
    """


class BufferFullError(SendError, BufferError):
    """The buffer had no room within ``max_block``; the record was not taken."""


class ProducerClosedError(UsageError):
    """The producer was used after ``close``."""


class TransactionAbortedError(RunError):
    """A transaction was not committed; none of its records can be read. Run it again."""
