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
_QUOTED = re.compile(r'[`"]([a-z][a-z0-9_.]+)[`"]')


@frozen
class Refusal:
    """What librdkafka says, and the property that it names, if any."""

    text: str
    key: str | None


def refused_by_client(kind: Kind, settings: Mapping[str, Any]) -> Refusal | None:
    """Make a client with these settings and throw it away; None where that works."""
    conf = {**settings, "bootstrap.servers": _NOWHERE, "log_level": 0}
    if str(conf.get("sasl.mechanism", conf.get("sasl.mechanisms", ""))).upper() == "OAUTHBEARER":
        conf["oauth_cb"] = lambda _config: ("", 0.0)
    make: Callable[[dict[str, Any]], Any] = {
        "consumer": Consumer,
        "producer": Producer,
        "admin": AdminClient,
    }[kind]
    try:
        client = make(conf)
    except (KafkaException, TypeError, ValueError) as exception:
        text = _text_of(exception)
        named = [name for name in _QUOTED.findall(text) if name in settings]
        return Refusal(text, named[0] if named else None)
    if kind == "consumer":
        client.close()
    return None


def _text_of(exception: Exception) -> str:
    cause = exception.args[0] if exception.args else exception
    text = cause.str() if hasattr(cause, "str") else str(cause)
    return " ".join(text.split())
