"""What topics hold, whoever wrote it: read without a group, on any broker."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Any

from window_consumer.kafka.client_log import ClientLog
from window_consumer.kafka.topic_reader import TopicReader
from window_consumer.model.offset_ranges import Span
from window_consumer.model.record import Message

_LOG = ClientLog(logging.getLogger("tests"))


def read_all(client: Mapping[str, Any], topic: str) -> list[Message]:
    """Return all records up to the present end of a topic, by partition and offset."""
    with _reader(client) as reader:
        return reader.read_all(topic)


def spans(client: Mapping[str, Any], topic: str) -> dict[int, Span]:
    """Return what each partition of a topic holds now."""
    with _reader(client) as reader:
        return {name.partition: span for name, span in reader.spans(topic).items()}


def _reader(client: Mapping[str, Any]) -> TopicReader:
    return TopicReader({"fetch.wait.max.ms": 10, "log_level": 0, **client}, _LOG)
