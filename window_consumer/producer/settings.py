"""What a Producer makes of a user's Kafka properties, and which of them it refuses."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from window_consumer.config import units
from window_consumer.kafka.settings import CONSUMER_ONLY
from window_consumer.model.errors import UsageError

_KEEPS_SENDING = (
    "it would give records up that a broker takes once it is back; this producer keeps sending"
    " until it is closed: leave it out, and wait with future.result(timeout)"
)
_BUFFER = "the buffer is bounded by memory="
_CALLBACK = "the producer needs this callback itself"
_REFUSED: Final = {
    "message.timeout.ms": _KEEPS_SENDING,
    "delivery.timeout.ms": _KEEPS_SENDING,
    "message.send.max.retries": _KEEPS_SENDING,
    "retries": _KEEPS_SENDING,
    "queue.buffering.max.kbytes": _BUFFER,
    "queue.buffering.max.messages": _BUFFER,
    "delivery.report.only.error": "a future's result is the broker's answer",
    "enable.gapless.guarantee": "the producer decides it",
    "transactional.id": "write transactional_id=...",
    **dict.fromkeys(
        ["dr_cb", "dr_msg_cb", "on_delivery", "error_cb", "logger", "stats_cb"], _CALLBACK
    ),
}
_ALL = "a record is sent when all in-sync replicas have it"
_ONLY_WITH_VALUE: Final = {
    "acks": (("all", "-1"), _ALL),
    "request.required.acks": (("all", "-1"), _ALL),
    "enable.idempotence": (("true",), "a record that is sent again must not be written twice"),
}
_SYNONYMS: Final = {"request.required.acks", "acks"}

BYTES_A_RECORD: Final = 512
"""What a small record costs beside its value: client, future, id. It bounds their number."""

_LARGEST_RECORD: Final = 100_000_000
"""Just below the broker's socket.request.max.bytes: beyond it the broker hangs up, for ever."""

_TOPIC_PROPAGATION_MS: Final = 5_000
"""A topic that was just made is known everywhere by then."""


def check_properties(user: Mapping[str, Any]) -> None:
    """Raise UsageError for properties that would lose records, or have another name here."""
    for key, value in user.items():
        if key in _REFUSED:
            raise UsageError(f"Producer: {key} may not be set: {_REFUSED[key]}")
        if key in _ONLY_WITH_VALUE:
            allowed, reason = _ONLY_WITH_VALUE[key]
            if str(value).lower() not in allowed:
                raise UsageError(f"Producer: {key} has to be {allowed[0]}: {reason}")


def client_properties(
    user: Mapping[str, Any], compression: str, transactional_id: str | None
) -> dict[str, Any]:
    """Return librdkafka's properties, but for the sizes of buffer and batches."""
    check_properties(user)
    ours: dict[str, Any] = {
        "linger.ms": 5,
        "compression.type": compression,
        "partitioner": "murmur2_random",  # as Java's producers
        "allow.auto.create.topics": False,
        "topic.metadata.refresh.interval.ms": 30_000,
        # The broker decides what is too large, by the topic's own limit.
        "message.max.bytes": _LARGEST_RECORD,
    }
    fixed: dict[str, Any] = {
        "acks": "all",
        "enable.idempotence": True,
        _PROPAGATION: min(_TOPIC_PROPAGATION_MS, int(missing_topic_s(user) * 1000)),
    }
    if transactional_id is None:
        # A refused batch ends the client. Else it would go on with the records that follow, and
        # what is sent again would come after them.
        fixed |= {"message.timeout.ms": 0, "enable.gapless.guarantee": True}
    else:
        fixed |= {"transactional.id": transactional_id}
    kept = {key: value for key, value in user.items() if key not in CONSUMER_ONLY | _SYNONYMS}
    if "compression.codec" in kept:
        del ours["compression.type"]
    return {**ours, **kept, **fixed}


def buffer_properties(memory: int) -> dict[str, Any]:
    """Return the properties that bound the buffer, in bytes of values and in records."""
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
    raise UsageError(f"Producer: {name} may not be negative: {given}")


def size(name: str, given: str | int) -> int:
    """Return the bytes of a size such as ``64MiB``, or of a number; raises UsageError."""
    if isinstance(given, str):
        try:
            given = units.parse_size(given)
        except units.UnitError as error:
            raise UsageError(f"Producer: {name}: {given!r} {error}; write 64MiB") from None
    if given < 1024:
        raise UsageError(f"Producer: {name} has to be 1KiB or more, not {given} bytes")
    return given


_PROPAGATION: Final = "topic.metadata.propagation.max.ms"
_MISSING_TOPIC_MS: Final = 60_000


def missing_topic_s(user: Mapping[str, Any]) -> float:
    """Return how long a topic may be missing before its records fail."""
    return int(user.get(_PROPAGATION, _MISSING_TOPIC_MS)) / 1000
