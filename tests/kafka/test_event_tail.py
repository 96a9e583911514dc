"""The end of a topic of events: what is read of it, and what is said of the rest."""

from __future__ import annotations

import logging
import re
from collections.abc import Mapping

import pytest
from attrs import evolve

from window_consumer.kafka.client_log import ClientLog
from window_consumer.kafka.embedded import EmbeddedBroker, NewRecord
from window_consumer.trace.event_batch import OffsetColumn, encoded
from window_consumer.trace.event_tail import EventTail, TailEnd

LOG = ClientLog(logging.getLogger("window_consumer.client"))
TOPIC = "wc.trace"


def batch(number: int) -> bytes:
    """Return a batch with two events."""
    places = OffsetColumn()
    places.add_run(number * 10, 2)
    common = {"role": "consumer", "step": "processed", "topic": "orders", "partition": 0}
    return encoded("w", number, 2, {**common, "time_us": 1}, {"offset": places})


@pytest.fixture
def tail(embedded: EmbeddedBroker) -> EventTail:
    """The topic, with batches 0 to 4 in its first partition and 5 to 9 in its second."""
    embedded.create_topic(TOPIC, 2)
    embedded.fill(TOPIC, [NewRecord(batch(n), partition=n // 5) for n in range(10)])
    return EventTail(
        TOPIC, {"bootstrap.servers": embedded.bootstrap}, LOG, most_s=60.0, answer_s=60.0
    )


def everything(tail: EventTail, since: Mapping[int, int] | None) -> TailEnd:
    return tail.read(since, lambda _: True, lambda _: True)


def numbers(found: TailEnd) -> list[int]:
    """Return which batches were read, each with both of its events."""
    offsets = sorted(event.offset or 0 for event in found.events)
    assert offsets == sorted(first + n for first in offsets[::2] for n in (0, 1))
    return [first // 10 for first in offsets[::2]]


def test_what_the_table_has_is_not_read_again_and_the_rest_is(tail: EventTail) -> None:
    found = everything(tail, {0: 3, 1: 5})
    assert (numbers(found), found.notes) == ([3, 4], ())


def test_a_partition_that_the_table_does_not_know_is_read_from_its_beginning(
    tail: EventTail,
) -> None:
    assert numbers(everything(tail, {0: 5})) == [5, 6, 7, 8, 9]
    assert numbers(everything(tail, None)) == list(range(10))


def test_what_retention_has_taken_is_passed_over_and_not_counted(
    tail: EventTail, embedded: EmbeddedBroker
) -> None:
    embedded.delete_records(TOPIC, 0, before=4)
    found = everything(evolve(tail, most_records=1), {0: 1, 1: 5})
    assert (numbers(found), found.notes) == ([4], ())


def test_of_a_topic_that_was_made_anew_all_is_read_and_it_is_said(tail: EventTail) -> None:
    found = everything(tail, {0: 6, 1: 5})
    assert numbers(found) == [0, 1, 2, 3, 4]
    (note,) = found.notes
    assert note.startswith(f"{TOPIC}[0] ")


def test_of_more_than_can_be_looked_at_the_newest_are_read(tail: EventTail) -> None:
    found = everything(evolve(tail, most_records=9), None)
    assert numbers(found) == [1, 2, 3, 4, 6, 7, 8, 9]
    (note,) = found.notes
    assert re.search(r"\b10 records\b.*\b8\b", note)
    assert everything(evolve(tail, most_records=10), None).notes == ()


def test_what_there_was_no_time_for_is_counted(tail: EventTail) -> None:
    found = everything(evolve(tail, most_s=-1.0), {0: 2, 1: 5})
    assert numbers(found) == [2]
    assert re.match(rf"{TOPIC}: .*\b2 of ", found.notes[0])


def test_batches_and_events_that_do_not_fit_are_left_out(tail: EventTail) -> None:
    found = tail.read(None, lambda data: data != batch(3), lambda event: (event.offset or 0) < 50)
    assert numbers(found) == [0, 1, 2, 4]


def test_what_cannot_be_read_is_counted_and_does_no_harm(
    tail: EventTail, embedded: EmbeddedBroker
) -> None:
    embedded.fill(TOPIC, [NewRecord(b"no batch", partition=0), NewRecord(None, partition=0)])
    embedded.fill(TOPIC, [NewRecord(batch(10), partition=0)])
    found = everything(tail, {0: 5, 1: 5})
    assert numbers(found) == [10]
    (note,) = found.notes
    assert note.startswith(f"{TOPIC}: 1 ")


def test_a_topic_that_is_not_there_yet_has_no_events(tail: EventTail) -> None:
    assert everything(evolve(tail, topic="nowhere"), None) == TailEnd()


def test_a_kafka_that_is_away_is_reported(tail: EventTail) -> None:
    away = evolve(tail, settings={"bootstrap.servers": "127.0.0.1:1"}, answer_s=0.5)
    found = everything(away, None)
    assert (found.events, found.is_away) == ((), True)
    assert "_TRANSPORT" in found.notes[0]
