"""What is known at the start: the newest dead letters of other versions."""

from __future__ import annotations

import pytest

from tests.reading import reader_of
from window_consumer.kafka.embedded import EmbeddedBroker
from window_consumer.model.offset_ranges import Span
from window_consumer.model.record import TopicPartition
from window_consumer.new_failures.baseline import FailureBaseline, failure_baseline, newest

DLQS = ("g.orders.dlq", "g.refunds.dlq")


@pytest.mark.parametrize(
    ("lengths", "most", "read"),
    [
        ((10, 10), 100, (10, 10)),
        ((10, 10), 10, (5, 5)),
        ((2, 100), 10, (2, 8)),
        ((100, 0, 3), 9, (6, 0, 3)),
        ((), 9, ()),
    ],
)
def test_the_newest_are_read_of_all_partitions(
    lengths: tuple[int, ...], most: int, read: tuple[int, ...]
) -> None:
    spans = {
        TopicPartition("dlq", number): Span(7, 7 + length) for number, length in enumerate(lengths)
    }
    ends = newest(spans, most)
    assert tuple(ends[name].count for name in spans) == read
    assert all(ends[name].end == spans[name].end for name in spans)


@pytest.fixture
def broker(embedded: EmbeddedBroker) -> EmbeddedBroker:
    for topic in DLQS:
        embedded.create_topic(topic, 2)
    return embedded


def dead_letter(
    broker: EmbeddedBroker, fingerprint: str | None, version: str | None, topic: str = DLQS[0]
) -> None:
    headers = [("wc-error-fingerprint", fingerprint), ("wc-app-version", version)]
    present = [(name, text.encode()) for name, text in headers if text is not None]
    broker.produce(topic, b"value", headers=present)


def known_to(broker: EmbeddedBroker, version: str, most: int = 100) -> FailureBaseline:
    with reader_of(broker.client_settings()) as reader:
        return failure_baseline(reader, DLQS, version, most)


def test_other_versions_of_all_topics_count_and_the_own_one_does_not(
    broker: EmbeddedBroker,
) -> None:
    dead_letter(broker, "a", "1")
    dead_letter(broker, "b", "2")
    dead_letter(broker, "c", "1", DLQS[1])
    dead_letter(broker, "d", None)
    dead_letter(broker, None, "1")
    assert known_to(broker, "2") == FailureBaseline(frozenset("acd"), 5)


def test_a_failure_of_both_versions_is_known(broker: EmbeddedBroker) -> None:
    dead_letter(broker, "a", "1")
    dead_letter(broker, "a", "2")
    assert known_to(broker, "2").fingerprints == {"a"}


def test_older_ones_are_not_read(broker: EmbeddedBroker) -> None:
    for fingerprint in "abc":
        dead_letter(broker, fingerprint, "1", DLQS[1])
    found = known_to(broker, "2", most=1)
    assert (found.dead_letters, "a" in found.fingerprints) == (1, False)
