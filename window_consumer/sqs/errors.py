"""The endpoint's responses to requests that it refuses, as clients of SQS read them."""

from __future__ import annotations

import json
from enum import Enum
from html import escape
from typing import Final

from window_consumer.model.errors import WindowConsumerError

_LONGEST_SHOWN: Final = 100


class SqsErrorKind(Enum):
    """A kind of error: its name in the JSON protocol, its code in the query protocol, a status.

    Older clients compare the code, newer ones the name, so an error carries both.
    """

    NO_SUCH_QUEUE = ("QueueDoesNotExist", "AWS.SimpleQueueService.NonExistentQueue", 400)
    UNSUPPORTED = ("UnsupportedOperation", "AWS.SimpleQueueService.UnsupportedOperation", 400)
    INVALID_RECEIPT = ("ReceiptHandleIsInvalid", "ReceiptHandleIsInvalid", 404)
    NOT_IN_FLIGHT = ("MessageNotInflight", "AWS.SimpleQueueService.MessageNotInflight", 400)
    INVALID_VALUE = ("InvalidParameterValueException", "InvalidParameterValue", 400)
    MISSING = ("MissingRequiredParameterException", "MissingParameter", 400)
    INVALID_CONTENTS = ("InvalidMessageContents", "InvalidMessageContents", 400)
    INVALID_ATTRIBUTE_NAME = ("InvalidAttributeName", "InvalidAttributeName", 400)
    INVALID_ATTRIBUTE_VALUE = ("InvalidAttributeValue", "InvalidAttributeValue", 400)
    EMPTY_BATCH = ("EmptyBatchRequest", "AWS.SimpleQueueService.EmptyBatchRequest", 400)
    LONG_BATCH = (
        "TooManyEntriesInBatchRequest",
        "AWS.SimpleQueueService.TooManyEntriesInBatchRequest",
        400,
    )
    LARGE_BATCH = ("BatchRequestTooLong", "AWS.SimpleQueueService.BatchRequestTooLong", 400)
    REPEATED_ID = (
        "BatchEntryIdsNotDistinct",
        "AWS.SimpleQueueService.BatchEntryIdsNotDistinct",
        400,
    )
    INVALID_ID = ("InvalidBatchEntryId", "AWS.SimpleQueueService.InvalidBatchEntryId", 400)
    UNKNOWN_CALL = ("UnknownOperationException", "InvalidAction", 400)
    MALFORMED = ("SerializationException", "MalformedInput", 400)
    TOO_LARGE = ("RequestEntityTooLargeException", "RequestEntityTooLarge", 413)
    UNSIGNED = ("MissingAuthenticationTokenException", "MissingAuthenticationToken", 403)
    INCOMPLETE_SIGNATURE = ("IncompleteSignatureException", "IncompleteSignature", 400)
    UNKNOWN_ACCESS_KEY = ("UnrecognizedClientException", "InvalidClientTokenId", 403)
    WRONG_SIGNATURE = ("InvalidSignatureException", "SignatureDoesNotMatch", 403)
    MISDIRECTED = ("AccessDeniedException", "AccessDenied", 421)
    UNAVAILABLE = ("ServiceUnavailableException", "ServiceUnavailable", 503)
    BUG = ("InternalFailure", "InternalFailure", 500)

    def __init__(self, shape: str, code: str, status: int):
        self.shape = shape
        self.code = code
        self.status = status
        self.is_of_sender = status < 500

    @property
    def fault(self) -> str:
        """Return which side is to blame, in the protocol's words."""
        return "Sender" if self.is_of_sender else "Receiver"


class SqsError(WindowConsumerError):
    """A refused request or entry of a batch; the client gets the message."""

    def __init__(self, kind: SqsErrorKind, message: str):
        super().__init__(message)
        self.kind = kind

    @property
    def headers(self) -> dict[str, str]:
        """Return the header that carries the older code."""
        return {"x-amzn-query-error": f"{self.kind.code};{self.kind.fault}"}

    def as_json(self) -> bytes:
        """Return the body of the JSON protocol."""
        body = {"__type": f"com.amazonaws.sqs#{self.kind.shape}", "message": str(self)}
        return json.dumps(body).encode()

    def as_xml(self, request_id: str) -> bytes:
        """Return the body of the query protocol."""
        kind = self.kind
        return (
            '<?xml version="1.0"?>'
            '<ErrorResponse xmlns="http://queue.amazonaws.com/doc/2012-11-05/"><Error>'
            f"<Type>{kind.fault}</Type><Code>{kind.code}</Code>"
            f"<Message>{escape(str(self))}</Message><Detail/></Error>"
            f"<RequestId>{request_id}</RequestId></ErrorResponse>"
        ).encode("utf-8", "replace")

    def as_entry(self, entry_id: str) -> dict[str, object]:
        """Return the failure of one entry of a batch."""
        return {
            "Id": entry_id,
            "SenderFault": self.kind.is_of_sender,
            "Code": self.kind.code,
            "Message": str(self),
        }


def shown(value: object) -> str:
    """Return a request's value in a form fit for error messages: short and in ASCII."""
    text = ascii(value)
    return text if len(text) <= _LONGEST_SHOWN else f"{text[:_LONGEST_SHOWN]}..."
