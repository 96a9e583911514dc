"""The Kafka properties of a Producer: the user's, its own, and those it refuses."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from window_consumer.config import units
from window_consumer.kafka.settings import CONSUMER_ONLY
from window_consumer.kafka.writing.memory_limit import BYTES_A_RECORD
from window_consumer.model.errors import UsageError

_KEEPS_SENDING = (
    "it would give up records that a broker accepts once it is back; this producer retries until it"
    " is closed: remove it, and wait with future.result(timeout)"
)
_BUFFER = "memory= limits the buffer"
_CALLBACK = "the producer needs this callback itself"
_REFUSED: Final = {
    "message.timeout.ms": _KEEPS_SENDING,
    "delivery.timeout.ms": _KEEPS_SENDING,
    "message.send.max.retries": _KEEPS_SENDING,
    "retries": _KEEPS_SENDING,
    "queue.buffering.max.kbytes": _BUFFER,
    "queue.buffering.max.messages": _BUFFER,
    "delivery.report.only.error": "futures need the delivery reports of successes, too",
    "enable.gapless.guarantee": "the producer sets it itself",
    "transactional.id": "write transactional_id=...",
    **dict.fromkeys(
        ["dr_cb", "dr_msg_cb", "on_delivery", "error_cb", "logger", "stats_cb"], _CALLBACK
    ),
}
_ALL = "a record counts as sent when all in-sync replicas have it"
_ONLY_WITH_VALUE: Final = {
    "acks": (("all", "-1"), _ALL),
    "request.required.acks": (("all", "-1"), _ALL),
    "enable.idempotence": (("true",), "a retried record must not be written twice"),
}
_SYNONYMS: Final = {"request.required.acks", "acks"}

_LARGEST_RECORD: Final = 100_000_000
"""Just below the broker's socket.request.max.bytes: beyond it the broker always disconnects."""

_TOPIC_PROPAGATION_MS: Final = 5_000
"""By then all brokers know a topic that was just created."""


def check_properties(user: Mapping[str, Any]) -> None:
    """Raise UsageError for properties that would lose records, or have another name here."""
    for key, value in user.items():
        if key in _REFUSED:
            raise UsageError(f"Producer: {key} cannot be set: {_REFUSED[key]}")
        if key in _ONLY_WITH_VALUE:
            allowed, reason = _ONLY_WITH_VALUE[key]
            if str(value).lower() not in allowed:
                raise UsageError(f"Producer: {key} must be {allowed[0]}: {reason}")


def client_properties(
    user: Mapping[str, Any], compression: str, transactional_id: str | None
) -> dict[str, Any]:
    """Return librdkafka's properties, except the sizes of buffer and batches."""
    check_properties(user)
    ours: dict[str, Any] = {
        "linger.ms": 5,
        "compression.type": compression,
        "partitioner": "murmur2_random",  # like Java's producer
        "allow.auto.create.topics": False,
        "topic.metadata.refresh.interval.ms": 30_000,
        # The broker decides what is too large, by the limit of the topic.
        "message.max.bytes": _LARGEST_RECORD,
    }
    fixed: dict[str, Any] = {
        "acks": "all",
        "enable.idempotence": True,
        _PROPAGATION: min(_TOPIC_PROPAGATION_MS, int(missing_topic_s(user) * 1000)),
    }
    if transactional_id is None:
        # A refused batch is fatal for the client. Otherwise it would send the following records,
        # and the resent ones would come after them.
        fixed |= {"message.timeout.ms": 0, "enable.gapless.guarantee": True}
    else:
        fixed |= {"transactional.id": transactional_id}
    kept = {key: value for key, value in user.items() if key not in CONSUMER_ONLY | _SYNONYMS}
    if "compression.codec" in kept:
        del ours["compression.type"]
    return {**ours, **kept, **fixed}


def buffer_properties(memory: int) -> dict[str, Any]:
    """Return the properties that limit the buffer, in bytes of values and in records."""
    return {
        "queue.buffering.max.kbytes": max(1, min(memory // 1024, 2**31 - 1)),
        "queue.buffering.max.messages": max(1, min(memory // BYTES_A_RECORD, 2**31 - 1)),
    }


def seconds(name: str, given: str | float) -> float:
    """Return the seconds of a duration such as ``60s``, or of a number; raises UsageError."""
    if isinstance(given, str):
        try:
            return units.parse_duration(given)
        except units.UnitError as error:
            raise UsageError(f"Producer: {name}: {given!r} {error}; write 60s or 200ms") from None
    if given >= 0:
        return float(given)
    raise UsageError(f"Producer: {name} must not be negative: {given}")


def size(name: str, given: str | int) -> int:
    """Return the bytes of a size such as ``64MiB``, or of a number; raises UsageError."""
    if isinstance(given, str):
        try:
            given = units.parse_size(given)
        except units.UnitError as error:
            raise UsageError(f"Producer: {name}: {given!r} {error}; write 64MiB") from None
    if given < 1024:
        raise UsageError(f"Producer: {name} must be at least 1KiB, not {given} bytes")
    return given


_PROPAGATION: Final = "topic.metadata.propagation.max.ms"
_MISSING_TOPIC_MS: Final = 60_000


def missing_topic_s(user: Mapping[str, Any]) -> float:
    """Return how long a topic may be missing before its records fail."""
    return int(user.get(_PROPAGATION, _MISSING_TOPIC_MS)) / 1000
