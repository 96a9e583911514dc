"""Which failures other versions of the application have among the dead letters."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

from attrs import frozen

from window_consumer.kafka.topic_reader import TopicReader
from window_consumer.model import headers as names
from window_consumer.model.offset_ranges import Span
from window_consumer.model.record import TopicPartition

MOST: Final = 10_000
"""How many of the newest dead letters a start reads; takes about a second."""


@frozen
class FailureBaseline:
    """The evidence in the newest dead letters of a worker."""

    fingerprints: frozenset[str]
    """The fingerprints of other versions."""
    dead_letters: int
    """How many were read."""


def failure_baseline(
    reader: TopicReader, topics: Iterable[str], version: str, most: int = MOST
) -> FailureBaseline:
    """Return the fingerprints in the newest dead letters that this version did not write.

    Dead letters without a version count as another version's. Raises the reader's errors.
    """
    spans = {name: span for topic in topics for name, span in reader.spans(topic).items()}
    own, found, count = version.encode(), set(), 0
    for messages in reader.read(newest(spans, most)):
        count += len(messages)
        for message in messages:
            headers = dict(message.headers())
            fingerprint = headers.get(names.ERROR_FINGERPRINT)
            if fingerprint and headers.get(names.APP_VERSION) != own:
                found.add(fingerprint.decode("utf-8", "replace"))
    return FailureBaseline(frozenset(found), count)


def newest(spans: Mapping[TopicPartition, Span], most: int) -> dict[TopicPartition, Span]:
    """Return the ends of these spans, of equal lengths if possible, ``most`` in total."""
    ends, left = {}, most
    for index, (name, span) in enumerate(sorted(spans.items(), key=lambda each: each[1].count)):
        count = min(span.count, left // (len(spans) - index))
        ends[name] = Span(span.end - count, span.end)
        left -= count
    return ends
