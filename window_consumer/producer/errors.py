"""Errors of records that could not be sent, and of misuse of a producer."""

from __future__ import annotations

from typing import Final

from window_consumer.kafka.writing.sent_record import Ending, OutgoingRecord, RecordEnd
from window_consumer.model.errors import (
    RunError,
    UsageError,
    WindowConsumerError,
    WrongProcessError,
)


class SendError(WindowConsumerError):
    """The base class of all errors that a Producer's futures raise."""

    code = "WC150"

    refused = False
    """Whether the record is certainly not written, and sending it again cannot help."""


class RefusedError(SendError):
    """The brokers will never accept this record, whenever it is sent."""

    refused = True


class TooLargeError(RefusedError):
    """The record alone exceeds the topic's size limit."""

    code = "WC151"

    def __init__(self, topic: str, size: int, limit: int | None):
        known = "" if limit is None else f" of {limit}"
        super().__init__(
            f"a record of {size} bytes exceeds the limit of {topic}: make it smaller, or raise the"
            f" topic's max.message.bytes{known}"
        )
        self.topic = topic
        self.size = size
        """Bytes of key, value and headers, before compression."""
        self.limit = limit
        """The topic's ``max.message.bytes``; None if the brokers do not report it."""


class SendDeniedError(RefusedError):
    """The producer may not write to the topic: an ACL is missing."""

    code = "WC152"


class NoSuchTopicError(RefusedError):
    """The topic was missing for 60 s."""

    code = "WC153"


class InvalidRecordError(RefusedError):
    """The record is invalid for the brokers or the client: its topic, timestamp or format."""

    code = "WC154"


class LoginRefusedError(SendError):
    """The brokers have refused the producer's login for 30 s; the record was not written."""

    code = "WC155"


class NeverSentError(SendError):
    """The producer was closed before the record was sent: it is certainly not written."""

    code = "WC156"


class MayHaveArrivedError(SendError):
    """The producer was closed while the record was in flight: it may or may not be written.

    Sending it again with the same ``wc-id`` is safe if consumers deduplicate by id.
    """

    code = "WC157"


class BufferFullError(SendError, BufferError):
    """The buffer had no room within ``max_block``; the record was not accepted."""

    code = "WC158"


class ProducerClosedError(UsageError):
    """The producer was used after ``close``."""

    code = "WC159"


class TransactionAbortedError(RunError):
    """A transaction was not committed; none of its records is visible. Retry it."""

    code = "WC160"


def closed_error() -> ProducerClosedError:
    """Return the error for use after ``close``."""
    return ProducerClosedError("the producer is closed: create a new one")


def wrong_process_error() -> WrongProcessError:
    """Return the error for use in a forked process."""
    return WrongProcessError("this producer belongs to another process: create one after the fork")


_KINDS: Final[dict[Ending, type[SendError]]] = {
    Ending.DENIED: SendDeniedError,
    Ending.INVALID: InvalidRecordError,
    Ending.NO_TOPIC: NoSuchTopicError,
    Ending.FAILED: SendError,
    Ending.LOGIN_REFUSED: LoginRefusedError,
    Ending.LOGIN_DOUBTFUL: MayHaveArrivedError,
    Ending.NEVER_SENT: NeverSentError,
    Ending.MAY_HAVE_ARRIVED: MayHaveArrivedError,
}
_LOGIN: Final = "the brokers refuse the login: {}"
_CLOSED: Final = "the producer was closed before the"
_TEXTS: Final = {
    Ending.DENIED: "{}: no permission to WRITE: add an ACL",
    Ending.LOGIN_REFUSED: _LOGIN,
    Ending.LOGIN_DOUBTFUL: f"{_LOGIN}; an earlier attempt may have written it",
    Ending.NEVER_SENT: f"{_CLOSED} record was sent",
    Ending.MAY_HAVE_ARRIVED: f"{_CLOSED} brokers acknowledged the record; it may have been written",
}


def send_error(record: OutgoingRecord, end: RecordEnd) -> SendError:
    """Return the error of a record's future."""
    if end.ending is Ending.TOO_LARGE:
        return TooLargeError(record.topic, record.size, end.limit)
    text = _TEXTS.get(end.ending, "{}").format(end.why)
    if end.ending is Ending.NO_TOPIC and not end.why:
        text = "the topic does not exist: create it"
    return _KINDS[end.ending](f"{record.topic}: {text}")
