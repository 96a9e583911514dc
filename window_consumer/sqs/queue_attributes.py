"""The attributes of queues: figures and settings of the configuration. No client changes them."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping
from time import time
from typing import Any, Final

from window_consumer.model.log_events import LogEvent
from window_consumer.runtime.log import own_logger
from window_consumer.sqs.errors import SqsError, SqsErrorKind, shown
from window_consumer.sqs.messages import ACCOUNT, MOST_BYTES
from window_consumer.sqs.queue import Queue

_FIGURES: Final = frozenset(
    {
        "ApproximateNumberOfMessages",
        "ApproximateNumberOfMessagesNotVisible",
        "ApproximateNumberOfMessagesDelayed",
    }
)

_KNOWN: Final = _FIGURES | {
    *("QueueArn", "Policy", "VisibilityTimeout", "MaximumMessageSize", "DelaySeconds"),
    *("MessageRetentionPeriod", "ReceiveMessageWaitTimeSeconds", "CreatedTimestamp"),
    *("LastModifiedTimestamp", "RedrivePolicy", "RedriveAllowPolicy", "FifoQueue"),
    *("ContentBasedDeduplication", "DeduplicationScope", "FifoThroughputLimit"),
    *("KmsMasterKeyId", "KmsDataKeyReusePeriodSeconds", "SqsManagedSseEnabled"),
}
"""The attributes of SQS; those without meaning here have no value."""

_log = own_logger()


class QueueAttributes:
    """Answers and compares attributes. Owner: the event loop of the endpoint."""

    def __init__(self) -> None:
        self._since = str(int(time()))
        self._reported: defaultdict[str, set[str]] = defaultdict(set)

    async def of(self, queue: Queue, wanted: Collection[str]) -> dict[str, str]:
        """Return the wanted attributes of a queue, perhaps ``All``; raises SqsError."""
        _refuse_unknown(name for name in wanted if name != "All")
        found = self._settings_of(queue)
        if "All" in wanted or not _FIGURES.isdisjoint(wanted):
            figures = await queue.figures()
            found |= {
                "ApproximateNumberOfMessages": str(figures.waiting),
                "ApproximateNumberOfMessagesNotVisible": str(figures.in_flight),
                "ApproximateNumberOfMessagesDelayed": str(figures.delayed),
            }
        return found if "All" in wanted else {name: found[name] for name in found if name in wanted}

    def check_equal(self, queue: Queue, wanted: Mapping[str, Any]) -> None:
        """Raise SqsError unless a queue already has these attributes."""
        _refuse_unknown(wanted)
        settings = self._settings_of(queue)
        for name in _differing(settings, wanted):
            is_now = f"is {settings[name]}" if name in settings else "is not supported"
            message = f"{name} {is_now}: attributes are set in the configuration of the worker"
            raise SqsError(SqsErrorKind.INVALID_ATTRIBUTE_VALUE, message)

    def report_ignored(self, queue: Queue, wanted: Mapping[str, Any]) -> None:
        """Log once which attributes of CreateQueue a queue does not have.

        Raises SqsError if it is FIFO and should not be, or the reverse.
        """
        _refuse_unknown(wanted)
        ignored = set(_differing(self._settings_of(queue), wanted))
        if "FifoQueue" in ignored and str(wanted["FifoQueue"]).lower() != "false":
            message = f"{queue.name} is not a FIFO queue: workers with `ordering: key` are"
            raise SqsError(SqsErrorKind.INVALID_VALUE, message)
        new = ignored - {"FifoQueue"} - self._reported[queue.name]
        if new:
            self._reported[queue.name] |= new
            _log.warning(
                "sqs: %s exists, so it was not created with %s: its attributes are set in the"
                " configuration of the worker",
                queue.name,
                ", ".join(sorted(new)),
                extra={"event": LogEvent.SQS_ATTRIBUTES_IGNORED, "queue": queue.name},
            )

    def _settings_of(self, queue: Queue) -> dict[str, str]:
        settings = {
            "QueueArn": f"arn:aws:sqs:kafka:{ACCOUNT}:{queue.name}",
            "CreatedTimestamp": self._since,
            "LastModifiedTimestamp": self._since,
            "VisibilityTimeout": str(round(queue.visibility_timeout_s)),
            "MaximumMessageSize": str(MOST_BYTES),
            "DelaySeconds": "0",
            "ReceiveMessageWaitTimeSeconds": "0",
        }
        if queue.fifo:
            settings |= {"FifoQueue": "true", "ContentBasedDeduplication": "false"}
        if queue.leases_until_dead is not None:
            # Clients such as Celery do not delete messages that they reject from a queue with dead
            # letters.
            arn = f"arn:aws:sqs:kafka:{ACCOUNT}:{queue.name}-dead-letters"
            policy = {"deadLetterTargetArn": arn, "maxReceiveCount": queue.leases_until_dead}
            settings["RedrivePolicy"] = json.dumps(policy)
        return settings


def _differing(settings: Mapping[str, str], wanted: Mapping[str, Any]) -> list[str]:
    return [name for name, value in wanted.items() if str(value) != settings.get(name, "")]


def _refuse_unknown(names: Iterable[str]) -> None:
    for name in names:
        if name not in _KNOWN:
            message = f"Unknown Attribute {shown(name)}."
            raise SqsError(SqsErrorKind.INVALID_ATTRIBUTE_NAME, message)
