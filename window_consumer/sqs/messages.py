"""Messages as clients send and receive them: bodies, attributes, and the Kafka records behind them.

A value that SQS does not accept as text travels in base64, marked by the attribute ``wc-encoding``.
"""

from __future__ import annotations

import binascii
import re
from base64 import b64decode, b64encode
from collections.abc import Callable, Sequence
from hashlib import md5
from typing import Final

from attrs import frozen

from window_consumer.sqs.attributes import (
    ENCODING,
    MessageAttribute,
    attributes_of,
    headers_of,
    is_text,
    md5_of,
    read_attributes,
    selection_of,
    text_of,
)
from window_consumer.sqs.errors import SqsError, SqsErrorKind, shown
from window_consumer.sqs.parameters import CallParameters
from window_consumer.sqs.queue import Queue, QueuedMessage, SentMessage

MOST_BYTES: Final = 1_048_576
"""The most bytes of a message's body and attributes, and of a batch: SQS's limit since 2025."""

ACCOUNT: Final = "000000000000"
"""The account in URLs and ARNs: a placeholder, as there are no accounts."""

MOST_DELAY_S: Final = 900

_TRACE: Final = "AWSTraceHeader"

_BASE64: Final = "base64"
_NO_VALUE: Final = "null"

_IDENTIFIER: Final = re.compile(r"[!-~]{1,128}")
_DIGITS: Final = 20
"""The digits of a sequence number."""


def md5_of_text(body: str) -> str:
    """Return the MD5 sum of a body, which clients verify."""
    return md5(body.encode(), usedforsecurity=False).hexdigest()


@frozen(kw_only=True)
class OutgoingMessage:
    """A checked message from a client."""

    body: str
    value: bytes
    key: bytes | None
    attributes: Sequence[MessageAttribute]
    headers: Sequence[tuple[str, bytes]]
    trace: MessageAttribute | None
    delay_s: int
    message_id: str | None

    @classmethod
    def read(cls, call: CallParameters, queue: Queue) -> OutgoingMessage:
        """Read the parameters of SendMessage, or of an entry of its batch; raises SqsError."""
        body = call.required("MessageBody")
        if not is_text(body):
            why = "the body has characters that no message may have; base64 can carry them"
            raise SqsError(SqsErrorKind.INVALID_CONTENTS, why)
        attributes = read_attributes(call.mapping("MessageAttributes"))
        message = cls(
            body=body,
            value=_value_of(body, attributes),
            key=_key_of(call, queue),
            attributes=attributes,
            headers=headers_of(attributes),
            trace=_trace_of(call),
            delay_s=call.whole_number("DelaySeconds", MOST_DELAY_S) or 0,
            message_id=_identifier(call, "MessageDeduplicationId"),
        )
        if message.size > MOST_BYTES:
            why = f"a message of {message.size} bytes is too large: at most {MOST_BYTES} are"
            " allowed"
            raise SqsError(SqsErrorKind.INVALID_VALUE, why)
        return message

    @property
    def size(self) -> int:
        """Return how many bytes count towards the limit."""
        return len(self.body.encode()) + sum(each.size for each in self.attributes)

    async def send(self, queue: Queue) -> SentMessage:
        """Send it; raises the queue's errors."""
        trace = [] if self.trace is None else [(self.trace.name, self.trace.value)]
        return await queue.send(
            self.value,
            key=self.key,
            headers=[*self.headers, *trace],
            delay_s=self.delay_s,
            message_id=self.message_id,
        )

    def answer(self, sent: SentMessage, *, fifo: bool) -> dict[str, str]:
        """Return the response for the client once it is sent."""
        answer = {"MessageId": sent.message_id, "MD5OfMessageBody": md5_of_text(self.body)}
        if self.attributes:
            answer["MD5OfMessageAttributes"] = md5_of(self.attributes)
        if self.trace is not None:
            answer["MD5OfMessageSystemAttributes"] = md5_of([self.trace])
        if fifo:
            answer["SequenceNumber"] = _sequence_number(sent.offset)
        return answer


def _value_of(body: str, attributes: Sequence[MessageAttribute]) -> bytes:
    encoding = next((each.value.decode() for each in attributes if each.name == ENCODING), None)
    if encoding is None:
        return body.encode()
    if encoding != _BASE64:
        message = f"the message attribute {ENCODING} is {shown(encoding)}: {_BASE64} is known"
        raise SqsError(SqsErrorKind.INVALID_VALUE, message)
    try:
        return b64decode(body, validate=True)
    except (binascii.Error, ValueError):
        message = f"the body is not base64, although the message attribute {ENCODING} says so"
        raise SqsError(SqsErrorKind.INVALID_CONTENTS, message) from None


def _key_of(call: CallParameters, queue: Queue) -> bytes | None:
    group = _identifier(call, "MessageGroupId")
    if group is None and queue.fifo:
        message = f"The request must contain the parameter MessageGroupId: {queue.name} is FIFO."
        raise SqsError(SqsErrorKind.MISSING, message)
    return None if group is None else group.encode()


def _identifier(call: CallParameters, name: str) -> str | None:
    text = call.text(name)
    if text is not None and _IDENTIFIER.fullmatch(text) is None:
        message = (
            f"Value {shown(text)} for parameter {name} is invalid. Reason: it has 1 to 128"
            " letters, digits and punctuation characters."
        )
        raise SqsError(SqsErrorKind.INVALID_VALUE, message)
    return text


def _trace_of(call: CallParameters) -> MessageAttribute | None:
    given = call.mapping("MessageSystemAttributes")
    for name in given:
        if name != _TRACE:
            message = f"the system attribute {shown(name)} is unknown: {_TRACE} may be sent"
            raise SqsError(SqsErrorKind.INVALID_VALUE, message)
    return next(iter(read_attributes(given)), None)


@frozen
class MessageSelection:
    """The parts of each message that a client wants."""

    is_system_wanted: Callable[[str], bool]
    is_wanted: Callable[[str], bool]

    @classmethod
    def read(cls, call: CallParameters) -> MessageSelection:
        """Read the parameters of ReceiveMessage; raises SqsError."""
        # AttributeNames is the older name for MessageSystemAttributeNames.
        system = (*call.texts("MessageSystemAttributeNames"), *call.texts("AttributeNames"))
        return cls(selection_of(system), selection_of(call.texts("MessageAttributeNames")))

    def as_json(self, message: QueuedMessage, *, fifo: bool) -> dict[str, object]:
        """Return a message as clients receive it."""
        body, encoding = _body_of(message.value)
        attributes = attributes_of(message.headers)
        trace = next((each for each in attributes if each.name == _TRACE), None)
        chosen = [each for each in attributes if each is not trace and self.is_wanted(each.name)]
        if encoding is not None:
            # Also for clients that did not ask for it: they need it to read the body.
            chosen.append(MessageAttribute(ENCODING, "String", encoding.encode()))
        found: dict[str, object] = {
            "MessageId": message.message_id,
            "ReceiptHandle": message.receipt_handle,
            "MD5OfBody": md5_of_text(body),
            "Body": body,
        }
        if chosen:
            found["MessageAttributes"] = {each.name: each.as_json() for each in chosen}
            found["MD5OfMessageAttributes"] = md5_of(chosen)
        system = _system_attributes(message, trace, fifo=fifo)
        if of_system := {
            name: each for name, each in system.items() if self.is_system_wanted(name)
        }:
            found["Attributes"] = of_system
        return found


def _body_of(value: bytes | None) -> tuple[str, str | None]:
    """Return the body for a value and its encoding; None for plain text."""
    if value is None:
        return "", _NO_VALUE
    text = text_of(value)
    return (b64encode(value).decode(), _BASE64) if text is None else (text, None)


def _system_attributes(
    message: QueuedMessage, trace: MessageAttribute | None, *, fifo: bool
) -> dict[str, str]:
    found = {
        "SenderId": ACCOUNT,
        "SentTimestamp": str(message.timestamp_ms),
        "ApproximateReceiveCount": str(message.attempt),
        "ApproximateFirstReceiveTimestamp": str(message.first_received_ms),
    }
    if message.key is not None:
        text = text_of(message.key)
        found["MessageGroupId"] = b64encode(message.key).decode() if text is None else text
    if fifo:
        # Records without a key are unordered: each is its own group.
        own_group = f"{message.topic}-{message.partition}-{message.offset}"
        found.setdefault("MessageGroupId", own_group)
        found["MessageDeduplicationId"] = message.message_id
        found["SequenceNumber"] = _sequence_number(message.offset)
    if trace is not None:
        found[_TRACE] = trace.value.decode("utf-8", "replace")
    return found


def _sequence_number(offset: int) -> str:
    return f"{offset:0{_DIGITS}}"
