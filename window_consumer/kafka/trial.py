"""Trying settings out: librdkafka itself says which ones it refuses. Nothing is connected to."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any

from attrs import frozen
from confluent_kafka import Consumer, KafkaException, Producer
from confluent_kafka.admin import AdminClient

from window_consumer.kafka.settings import Kind

_NOWHERE = "127.0.0.1:1"
_NAMED = re.compile(r'[`"]([a-z][a-z0-9_.]+)[`"]|\b([a-z][a-z0-9]*(?:\.[a-z0-9]+)+) failed:')


@frozen
class Refusal:
    """What librdkafka says, and the property that it names, if any."""

    text: str
    key: str | None


def refused_by_client(kind: Kind, settings: Mapping[str, Any]) -> Refusal | None:
    """Make a client with these settings and throw it away; None where that works."""
    text = _answer(kind, settings)
    if text is None:
        return None
    for quoted, failed in _NAMED.findall(text):
        key = quoted or failed
        if key in settings:
            return Refusal(text, key)
    # A property with several names is refused by another one than was written.
    for key, value in settings.items():
        if _answer(kind, {_GROUP: "any", key: value}) == text:
            return Refusal(f"{key}: {text}", key)
    return Refusal(text, None)


_GROUP = "group.id"
_CLIENTS: Mapping[Kind, Callable[[dict[str, Any]], Any]] = {
    "consumer": Consumer,
    "producer": Producer,
    "admin": AdminClient,
}


def _answer(kind: Kind, settings: Mapping[str, Any]) -> str | None:
    """Return what librdkafka has against these settings, None where it takes them."""
    conf = {**settings, "bootstrap.servers": _NOWHERE, "log_level": 0}
    if kind != "consumer":
        conf.pop(_GROUP, None)
    try:
        client = _CLIENTS[kind](conf)
    except (KafkaException, TypeError, ValueError) as exception:
        return _text_of(exception)
    if kind == "consumer":
        client.close()
    return None


def _text_of(exception: Exception) -> str:
    cause = exception.args[0] if exception.args else exception
    text = cause.str() if hasattr(cause, "str") else str(cause)
    return " ".join(text.split())
