"""Dead-letter headers of other frameworks, and how each framework encodes numbers.

A format maps headers to fields. If a header occurs several times (the record failed again later),
the first value describes the origin and the last one the error.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from attrs import field, frozen

from window_consumer.model.fault import fingerprint, place_in
from window_consumer.model.header_values import (
    count_of_1_or_4_bytes,
    count_of_4_bytes,
    count_of_8_bytes,
    count_of_any_form,
    text,
)
from window_consumer.model.headers import Reason
from window_consumer.model.protocols import Headers

Fields = dict[str, Any]
"""Parsed values by the names of DeadLetter's fields."""

Read = Callable[[bytes | None], str | int | None]

_SPRINGS_OWN = "org.springframework.kafka."


@frozen
class ForeignFormat:
    """The headers that a framework writes to its dead letters."""

    name: str
    prefixes: tuple[str, ...]
    """Prefixes of the framework's own headers."""
    marks: frozenset[str]
    """Headers that every dead letter of this framework has, and nobody else writes."""
    fields: Mapping[str, tuple[str, Read]]
    """The field and parser of each header."""
    finish: Callable[[Fields, Mapping[str, bytes | None]], None] = field(
        default=lambda fields, headers: None  # noqa: ARG005 - the form that others need
    )
    """Corrects fields that depend on several headers."""

    def is_of_it(self, header: str) -> bool:
        """Return whether the framework, not the record's producer, wrote a header."""
        return header.startswith(self.prefixes)

    def read(self, headers: Headers) -> Fields:
        """Return the fields that the headers contain."""
        fields: Fields = {}
        for header, value in headers:
            known = self.fields.get(header)
            if known is None:
                continue
            name, read = known
            if name.startswith("original_") and fields.get(name) is not None:
                continue
            fields[name] = read(value)
        self.finish(fields, dict(headers))
        error_class, stack = fields.get("error_class"), fields.get("error_stack")
        if error_class or stack:
            fields["fingerprint"] = fingerprint(error_class or "", place_in(stack or ""))
        return fields


def _finish_spring(fields: Fields, headers: Mapping[str, bytes | None]) -> None:
    """Replace Spring's wrapping exception by the handler's exception."""
    if fields.get("attempts") and "retry_topic-attempts" in headers:
        fields["attempts"] -= 1  # Spring counts the next attempt
    if fields.get("error_class") is None:
        for family in _SPRINGS_FAMILIES:
            for name, what in _SPRINGS_KEY_ERRORS.items():
                fields[name] = text(headers.get(family + what)) or fields.get(name)
    outer = fields.get("error_class") or ""
    causes = (text(headers.get(f"{each}exception-cause-fqcn")) for each in _SPRINGS_FAMILIES)
    cause = next(filter(None, causes), None)
    if outer.startswith(_SPRINGS_OWN):
        if outer.endswith(".DeserializationException"):
            fields["reason"] = Reason.DECODE.value
        elif cause is not None:
            fields["error_class"] = cause


def _finish_connect(fields: Fields, headers: Mapping[str, bytes | None]) -> None:
    connector = text(headers.get("__connect.errors.connector.name"))
    task = text(headers.get("__connect.errors.task.id"))
    if connector is not None:
        fields["handler"] = connector if task is None else f"{connector}-{task}"
    stage = text(headers.get("__connect.errors.stage")) or ""
    if stage.endswith("_CONVERTER"):
        fields["reason"] = Reason.DECODE.value


def _class_before_message(value: bytes | None) -> str | None:
    """Return the class of an exception that Java formatted as ``class: message``."""
    whole = text(value)
    return None if whole is None else whole.partition(":")[0].strip()


_SPRINGS_FAMILIES = ("kafka_dlt-", "kafka_")
"""Prefixes of the DeadLetterPublishingRecoverer, alone and in retryable topics."""

_SPRINGS_KEY_ERRORS = {
    "error_class": "key-exception-fqcn",
    "error_message": "key-exception-message",
    "error_stack": "key-exception-stacktrace",
}
"""Separate headers for a key that could not be deserialized."""

_SPRINGS_FIELDS: Mapping[str, tuple[str, Read]] = {
    "original-topic": ("original_topic", text),
    "original-partition": ("original_partition", count_of_4_bytes),
    "original-offset": ("original_offset", count_of_8_bytes),
    "original-timestamp": ("original_timestamp", count_of_8_bytes),
    "original-consumer-group": ("group", text),
    "exception-fqcn": ("error_class", text),
    "exception-message": ("error_message", text),
    "exception-stacktrace": ("error_stack", text),
}

_SPRING = ForeignFormat(
    "spring",
    (
        "kafka_dlt-",
        "kafka_original-",
        "kafka_exception-",
        "kafka_key-exception-",
        "retry_topic-",
        "kafka_deliveryAttempt",
        "springDeserializerException",
    ),
    frozenset(
        f"{family}{name}"
        for family in _SPRINGS_FAMILIES
        for name in ("original-topic", "exception-fqcn", "key-exception-fqcn")
    ),
    {
        **{
            f"{family}{header}": known
            for family in _SPRINGS_FAMILIES
            for header, known in _SPRINGS_FIELDS.items()
        },
        "retry_topic-attempts": ("attempts", count_of_1_or_4_bytes),
        "kafka_deliveryAttempt": ("attempts", count_of_4_bytes),
    },
    _finish_spring,
)
_CONNECT = ForeignFormat(
    "kafka-connect",
    ("__connect.errors.",),
    frozenset({"__connect.errors.topic", "__connect.errors.exception.class.name"}),
    {
        "__connect.errors.topic": ("original_topic", text),
        "__connect.errors.partition": ("original_partition", count_of_any_form),
        "__connect.errors.offset": ("original_offset", count_of_any_form),
        "__connect.errors.exception.class.name": ("error_class", text),
        "__connect.errors.exception.message": ("error_message", text),
        "__connect.errors.exception.stacktrace": ("error_stack", text),
    },
    _finish_connect,
)
_STREAMS = ForeignFormat(
    "kafka-streams",
    ("__streams.errors.",),
    frozenset({"__streams.errors.topic", "__streams.errors.exception"}),
    {
        "__streams.errors.topic": ("original_topic", text),
        "__streams.errors.partition": ("original_partition", count_of_any_form),
        "__streams.errors.offset": ("original_offset", count_of_any_form),
        "__streams.errors.exception": ("error_class", _class_before_message),
        "__streams.errors.message": ("error_message", text),
        "__streams.errors.stacktrace": ("error_stack", text),
    },
)
_SHARE_GROUP = ForeignFormat(
    "share-group",
    ("__dlq.errors.",),
    frozenset({"__dlq.errors.topic", "__dlq.errors.group"}),
    {
        "__dlq.errors.topic": ("original_topic", text),
        "__dlq.errors.partition": ("original_partition", count_of_any_form),
        "__dlq.errors.offset": ("original_offset", count_of_any_form),
        "__dlq.errors.group": ("group", text),
        "__dlq.errors.delivery.count": ("attempts", count_of_any_form),
        "__dlq.errors.message": ("error_message", text),
    },
)
_KPIPE = ForeignFormat(
    "kpipe",
    ("x-dlq-",),
    frozenset({"x-dlq-source-topic", "x-dlq-exception-class"}),
    {
        "x-dlq-source-topic": ("original_topic", text),
        "x-dlq-source-partition": ("original_partition", count_of_any_form),
        "x-dlq-source-offset": ("original_offset", count_of_any_form),
        "x-dlq-source-timestamp": ("original_timestamp", count_of_any_form),
        "x-dlq-exception-class": ("error_class", text),
        "x-dlq-exception-message": ("error_message", text),
    },
)

FORMATS: Mapping[str, ForeignFormat] = {
    mark: each
    for each in (_SPRING, _CONNECT, _STREAMS, _SHARE_GROUP, _KPIPE)
    for mark in each.marks
}
"""Each format by the headers that identify it."""
