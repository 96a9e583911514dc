"""The writer of the trace is bounded, counts what it loses, and makes nobody wait."""

from __future__ import annotations

import json
import threading
from collections.abc import Sequence
from time import monotonic

import pytest

from tests.commands import DEADLINE_S
from tests.engine.support import Note as Message
from tests.telemetry.tracing import ABOUT, LOGGER, Kept
from window_consumer.model.key_forms import as_text
from window_consumer.trace.event import Step
from window_consumer.trace.metrics import TraceFigures
from window_consumer.trace.recording import batch_builder as batches
from window_consumer.trace.recording import writer
from window_consumer.trace.recording.exporter import Written
from window_consumer.trace.recording.inbox import EventGroup, TraceNote
from window_consumer.trace.recording.writer import TraceWriter

RECEIVED = EventGroup(ABOUT, Step.RECEIVED, "orders", 0, 1.0)
PROCESSED = EventGroup(ABOUT, Step.PROCESSED, "orders", 0, 1.0)


def note(first: int, count: int, key: bytes | None = b"k", size: int = 10) -> TraceNote:
    return TraceNote(RECEIVED, [Message(first + i, key, size) for i in range(count)], 1_700)


class Hangs(Kept):
    """A way out that does not return."""

    def __init__(self) -> None:
        super().__init__()
        self.entered = threading.Event()
        self.may_go_on = threading.Event()

    def write(self, batches: Sequence[Written]) -> None:
        """Hang until somebody says."""
        self.entered.set()
        self.may_go_on.wait(DEADLINE_S)
        super().write(batches)


class Raises(Kept):
    """A way out that is broken, at first."""

    broken = True

    def write(self, batches: Sequence[Written]) -> None:
        """Raise, at first."""
        if self.broken:
            raise RuntimeError("no way")
        super().write(batches)


def test_what_was_noted_is_written_at_the_end() -> None:
    way = Kept()
    made = TraceWriter(way, None, 60.0, LOGGER)
    inbox = made.inbox()
    made.start()
    made.record(inbox, note(0, 3))
    made.close(DEADLINE_S)
    assert [event.offset for event in way.events] == [0, 1, 2]
    assert (made.written, made.dropped) == (3, 0)


def test_events_of_many_slices_share_a_batch() -> None:
    way = Kept()
    made = TraceWriter(way, None, 60.0, LOGGER)
    inbox = made.inbox()
    for first in range(100):
        made.record(inbox, note(first, 1))
    made.flush()
    assert len(way.batches) == 1
    assert [event.offset for event in way.events] == list(range(100))


def test_records_that_come_one_by_one_share_a_batch_each_with_its_time_and_duration() -> None:
    way = Kept()
    made = TraceWriter(way, None, 60.0, LOGGER)
    inbox = made.inbox()
    line = inbox.line(PROCESSED)
    came = [None, 10.0, 10.5, 99.0]
    for offset, begin in enumerate(came):
        made.record_single(inbox, line, Message(offset), 11.0 + offset, begin)
    assert inbox.waiting == 4
    made.flush()
    assert (inbox.waiting, made.dropped) == (0, 0)
    assert len(way.batches) == 1
    start_us = way.events[0].time_us
    assert start_us == pytest.approx(made.time_us(11.0), abs=1_000)
    assert [
        (event.offset, event.time_us - start_us, event.duration_us) for event in way.events
    ] == [
        (0, 0, None),
        (1, pytest.approx(1_000_000, abs=1), 2_000_000),
        (2, pytest.approx(2_000_000, abs=1), 2_500_000),
        (3, pytest.approx(3_000_000, abs=1), 0),
    ]


def test_more_single_records_than_a_batch_takes_keep_their_times() -> None:
    way = Kept()
    made = TraceWriter(way, None, 60.0, LOGGER)
    inbox = made.inbox()
    line = inbox.line(PROCESSED)
    count = batches.MAX_BATCH_RECORDS + 10
    for offset in range(count):
        made.record_single(inbox, line, Message(offset), 1.0 + offset, 1.0)
    made.flush()
    assert [batch.events for batch in way.batches] == [count // 2, count // 2]
    assert [event.offset for event in way.events] == list(range(count))
    assert [event.duration_us for event in way.events] == [
        each * 1_000_000 for each in range(count)
    ]
    times = [event.time_us for event in way.events]
    assert times == sorted(times)


def test_single_records_beyond_what_may_wait_are_made_events_of_at_once() -> None:
    way = Kept()
    made = TraceWriter(way, None, 60.0, LOGGER)
    inbox = made.inbox()
    line = inbox.line(PROCESSED)
    for offset in range(writer.MAX_RECORDS + 3):
        made.record_single(inbox, line, Message(offset), 2.0, 1.0)
    assert inbox.waiting == writer.MAX_RECORDS
    assert len(inbox.made) == 3
    large = Message(0, size=writer.MAX_BYTES + 1)
    made.flush()
    made.record_single(inbox, line, large, 2.0, 1.0)
    assert inbox.waiting == 0
    made.flush()
    assert (made.written, made.dropped) == (writer.MAX_RECORDS + 4, 0)
    assert {event.duration_us for event in way.events} == {1_000_000}


def test_single_records_wake_the_thread_before_its_time() -> None:
    way = Kept()
    made = TraceWriter(way, None, 3_600.0, LOGGER)
    inbox = made.inbox()
    line = inbox.line(PROCESSED)
    for offset in range(writer.MAX_RECORDS // 4 + 1):
        made.record_single(inbox, line, Message(offset), 2.0, 1.0)
    made.start()
    deadline = monotonic() + DEADLINE_S
    while inbox.waiting and monotonic() < deadline:
        pass
    assert not inbox.waiting
    made.close(DEADLINE_S)


def test_a_line_that_nobody_adds_to_is_emptied_and_forgotten() -> None:
    way = Kept()
    made = TraceWriter(way, None, 60.0, LOGGER)
    inbox = made.inbox()
    line, other = inbox.line(PROCESSED), inbox.line(RECEIVED)
    made.record_single(inbox, line, Message(1), 2.0, 1.0)
    line.is_over = True
    made.flush()
    assert [event.offset for event in way.events] == [1]
    assert inbox._lines == [other]


def test_a_way_out_that_hangs_costs_events_and_nobody_waits_for_it() -> None:
    way = Hangs()
    made = TraceWriter(way, as_text, 0.001, LOGGER)
    inbox = made.inbox()
    made.record(inbox, note(0, 1))  # before the thread can find nothing, and hang with that
    made.start()
    assert way.entered.wait(DEADLINE_S)
    rounds, large = 0, note(0, 1000, key=b"k" * 450)
    while not made.dropped:
        made.record(inbox, large)
        rounds += 1
        assert rounds < 100
    made.record(inbox, note(0, 500))
    lost = made.dropped
    assert lost == 1500
    assert made.figures().lost == {"memory": 1500, "made": 0}
    assert inbox.waiting <= writer.MAX_RECORDS
    assert sum(len(batch.data) for batch in inbox.made) <= writer.MAX_BYTES + 500_000
    way.may_go_on.set()
    made.close(DEADLINE_S)
    assert made.written == 1 + (rounds - 1) * 1000
    made.record(inbox, note(7, 1))
    made.flush()
    assert json.loads(way.batches[-1].data)["all"]["dropped"] == lost


def test_records_with_large_values_are_not_held() -> None:
    made = TraceWriter(Kept(), None, 60.0, LOGGER)
    inbox = made.inbox()
    for first in range(100):
        made.record(inbox, note(first, 1, size=1_000_000))
    assert inbox.waiting <= writer.MAX_BYTES // 1_000_000
    assert made.dropped == 0
    made.flush()
    assert made.written == 100


def test_a_way_out_that_raises_is_said_once_and_tried_again(
    caplog: pytest.LogCaptureFixture,
) -> None:
    way = Raises()
    made = TraceWriter(way, None, 0.001, LOGGER)
    inbox = made.inbox()
    made.start()
    for first in range(3):
        made.record(inbox, note(first, 1))
        while inbox.waiting:
            pass
    assert [each.levelname for each in caplog.records] == ["WARNING"]
    way.broken = False
    made.record(inbox, note(9, 1))
    made.close(DEADLINE_S)
    assert 9 in [event.offset for event in way.events]


def test_what_cannot_be_made_a_batch_of_is_lost_alone_and_counted() -> None:
    class Unreadable(Message):
        def headers(self) -> None:
            raise RuntimeError("no headers")

    way = Kept()
    made = TraceWriter(way, None, 60.0, LOGGER)
    inbox = made.inbox()
    other = EventGroup(ABOUT, Step.RECEIVED, "orders", 1, 1.0)
    made.record(inbox, TraceNote(other, [Unreadable(5), Unreadable(6)], 1))
    made.record(inbox, note(0, 1))
    with pytest.raises(RuntimeError, match="no headers"):
        made.flush()
    assert [event.offset for event in way.events] == [0]
    assert made.dropped == 2
    assert made.figures() == TraceFigures(1, {"memory": 0, "made": 2}, 0, None, 0.0)


def test_no_batch_is_larger_than_brokers_take() -> None:
    way = Kept()
    made = TraceWriter(way, as_text, 60.0, LOGGER)
    inbox = made.inbox()
    made.record(inbox, note(0, 4000, key=b"k" * 500))
    made.record(inbox, note(4000, 1, key=b"k" * 600_000))
    made.record(inbox, note(4001, 10_000))
    made.flush()
    assert max(len(batch.data) for batch in way.batches) <= batches.MAX_BATCH_BYTES
    offsets = sorted(event.offset or 0 for event in way.events)
    assert offsets == [*range(4000), *range(4001, 14_001)]
    assert made.dropped == 1


def test_what_is_written_is_json_with_what_all_have_in_common_once() -> None:
    way = Kept()
    made = TraceWriter(way, as_text, 60.0, LOGGER)
    made.record(made.inbox(), note(17, 500))
    made.flush()
    (batch,) = way.batches
    read = json.loads(batch.data)
    assert read["columns"]["offset"] == {"v": [17], "n": [500], "up": True}
    assert read["columns"]["time_us"] == {"v": [1700], "n": [500]}
    assert read["all"]["group"] == "shop"
    assert len(batch.data) < 500 * 5 + 600
