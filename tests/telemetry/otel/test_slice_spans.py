"""Spans of slices, copies and stalls, of what a real Engine tells its observers."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from random import Random, getrandbits
from time import perf_counter, time_ns
from typing import Any

import pytest
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace.sampling import (
    ALWAYS_OFF,
    Decision,
    ParentBased,
    Sampler,
    SamplingResult,
    TraceIdRatioBased,
)
from opentelemetry.trace import TraceFlags

from tests.engine.driver import Driven
from tests.engine.support import Note, failure, notes, spent_after, stalled_after
from tests.telemetry.otel.memory import SAMPLED, SPAN, TRACE, UNSAMPLED, Memory, about, trace_of
from window_consumer.metrics.otel.slice_spans import (
    GATHER_S,
    MOST_BYTES,
    MOST_NOTES,
    NoteTaker,
    SliceSpans,
)
from window_consumer.metrics.otel.spans import MOST_LINKS, RANDOM
from window_consumer.metrics.otel.trace_ids import LOW

DEADLINE_S = 30.0
SEEDED = Random(17)


@pytest.fixture
def notes_written() -> Iterator[NoteTaker]:
    taker = NoteTaker()
    yield taker
    taker.end(DEADLINE_S)


Observe = Callable[..., Driven]


@pytest.fixture
def observe(notes_written: NoteTaker) -> Observe:
    def observe(
        memory: Memory,
        taker: NoteTaker = notes_written,
        draw: Callable[[int], int] = getrandbits,
        **rules: Any,
    ) -> Driven:
        driven = Driven(**rules)
        driven.now = perf_counter()  # the clock that workers have
        driven.engine.observe(
            SliceSpans(memory.spans, memory.budget, taker, lambda _: "shop.orders.dlq", draw)
        )
        return driven

    return observe


def ran(driven: Driven, *messages: Any, elapsed: float = 0.25) -> None:
    driven.deliver(*messages)
    driven.tick()
    while driven.out:
        driven.finish(driven.out[0], elapsed)
        driven.tick()


def written(memory: Memory, taker: NoteTaker) -> list[ReadableSpan]:
    """Wait until all notes are spans."""
    done = threading.Event()
    taker.take(done.set)
    assert done.wait(DEADLINE_S)
    return list(memory.ended)


def waiting_for(event: threading.Event) -> Callable[[], None]:
    def wait() -> None:
        assert event.wait(DEADLINE_S)

    return wait


def seconds(span: ReadableSpan) -> float:
    assert span.end_time is not None
    assert span.start_time is not None
    return (span.end_time - span.start_time) / 1e9


def test_a_slice_has_a_span_as_long_as_it_took_with_links_to_its_sampled_producers(
    observe: Observe, notes_written: NoteTaker
) -> None:
    memory = Memory()
    driven = observe(memory)
    ran(driven, Note(0, headers=SAMPLED))
    ran(driven, Note(1, headers=UNSAMPLED))
    first, second = written(memory, notes_written)
    assert first.parent is None
    assert [(link.context.trace_id, link.context.span_id) for link in first.links] == [
        (TRACE, SPAN)
    ]
    assert not second.links
    assert {"offset": 0, "last_offset": 0, "message_count": 1, "attempt": 1}.items() <= about(
        first
    ).items()
    assert seconds(first) == pytest.approx(0.25)
    assert first.end_time is not None
    assert abs(time_ns() - first.end_time) < 60e9
    assert trace_of(first) != trace_of(second)


def test_links_end_somewhere_and_the_rest_is_counted() -> None:
    memory = Memory()
    messages = [Note(offset, headers=SAMPLED) for offset in range(MOST_LINKS + 5)]
    span = memory.spans.of_many(messages, len(messages), {})
    span.end()
    (ended,) = memory.ended
    assert len(ended.links) == MOST_LINKS
    assert about(ended)["links_left_out"] == 5


def test_what_the_sampler_drops_is_not_looked_at(
    observe: Observe, notes_written: NoteTaker
) -> None:
    memory = Memory(sampler=ALWAYS_OFF)
    asked: list[int] = []

    class Asked(Note):
        def headers(self) -> Any:
            asked.append(self.offset())
            return SAMPLED

    ran(observe(memory), Asked(0), Asked(1))
    assert written(memory, notes_written) == []
    assert not asked
    assert memory.counts.made == 0


def test_a_copy_is_in_the_trace_of_its_record(observe: Observe, notes_written: NoteTaker) -> None:
    memory = Memory()
    driven = observe(memory, retry=spent_after(1))
    driven.deliver(Note(0, headers=SAMPLED), Note(1, headers=UNSAMPLED))
    driven.tick()
    leaving: list[Any] = []
    while driven.out:
        driven.fail(driven.out[0], 0, 1)
        leaving += driven.published(1.0)
    for failed in leaving:
        driven.copied(failed)
    spans = [each for each in written(memory, notes_written) if each.name.startswith("send")]
    assert [(each.name, trace_of(each)) for each in spans] == [("send shop.orders.dlq", TRACE)]
    (sent,) = spans
    assert sent.parent is not None
    assert sent.parent.span_id == SPAN
    assert {
        "outcome": "dead_lettered",
        "reason": "RETRIES_EXHAUSTED",
        "source": "orders[0]@0",
    }.items() <= about(sent).items()
    assert "offset" not in about(sent)  # nobody knows that of the copy


def test_a_record_that_is_dropped_has_no_copy_and_a_span(
    observe: Observe, notes_written: NoteTaker
) -> None:
    memory = Memory()
    driven = observe(memory, retry=spent_after(1, when_spent="drop"))
    driven.deliver(Note(0, headers=SAMPLED))
    driven.tick()
    driven.fail(driven.out[0], 0)
    driven.tick(1.0)
    driven.tick(1.0)
    names = {each.name: about(each) for each in written(memory, notes_written)}
    assert names["settle orders"]["outcome"] == "dropped"


def test_a_call_that_does_not_return_is_reported_with_its_stack(
    observe: Observe, notes_written: NoteTaker
) -> None:
    memory = Memory()
    driven = observe(memory, stall=stalled_after(10.0, action="report"))
    driven.deliver(Note(0, headers=SAMPLED))
    driven.tick()
    driven.claim(driven.out[0], 1)
    (stalled,) = driven.tick(11.0).stalled
    driven.engine.on_looked_at(stalled, failure(), driven.now)
    (span,) = written(memory, notes_written)
    assert (span.name, trace_of(span)) == ("stall orders", TRACE)
    assert seconds(span) == pytest.approx(11.0)
    (event,) = span.events
    assert event.name == "window_consumer.stall"
    assert (event.attributes or {})["code.stacktrace"] == failure().fault.stack


def test_what_is_too_much_costs_counted_spans_and_nobody_waits() -> None:
    memory = Memory(per_second=10**6)
    taker, go_on = NoteTaker(), threading.Event()
    taker.take(waiting_for(go_on))
    driven = Driven()
    driven.engine.observe(SliceSpans(memory.spans, memory.budget, taker, str))
    try:
        ran(driven, *notes(0, size=MOST_BYTES - 1))
        ran(driven, *notes(1, size=2))
        assert memory.counts.lost == 1
        for _ in range(MOST_NOTES):
            taker.take(lambda: None)
        ran(driven, *notes(2, size=1))
        assert memory.counts.lost == 2
    finally:
        go_on.set()
        taker.end(DEADLINE_S)
    assert [about(each)["offset"] for each in memory.ended] == [0]


def test_the_end_does_not_wait_for_long() -> None:
    taker, go_on = NoteTaker(), threading.Event()
    done: list[int] = []
    taker.take(waiting_for(go_on))
    taker.take(lambda: done.append(1))
    taker.end(0.01)
    go_on.set()
    taker._thread.join(DEADLINE_S)
    assert not taker._thread.is_alive()
    assert not done


def test_what_would_not_be_recorded_is_not_noted(observe: Observe) -> None:
    drawn: list[int] = []

    def draw(bits: int) -> int:
        drawn.append(SEEDED.getrandbits(bits))
        return drawn[-1]

    left: list[Callable[[], None]] = []

    class Kept(NoteTaker):
        def take(self, note: Callable[[], None]) -> None:
            left.append(note)

    memory = Memory(sampler=ParentBased(TraceIdRatioBased(0.25)), per_second=10**6)
    kept = Kept()
    driven = observe(memory, kept, draw, slots=1, batch_records=1)
    ran(driven, *notes(*range(200)))
    kept.end(DEADLINE_S)
    assert len(drawn) == 200
    wanted = [each for each in drawn if each & LOW < 1 << 62]
    assert 20 < len(wanted) < 80
    assert len(left) == len(wanted)
    for note in left:
        note()
    assert [trace_of(each) for each in memory.ended] == wanted
    contexts = [each.context for each in memory.ended if each.context is not None]
    assert {each.trace_flags for each in contexts} == {TraceFlags.SAMPLED | RANDOM}
    assert len({each.span_id for each in contexts}) == len(wanted)


def test_a_sampler_that_goes_by_something_else_is_asked_for_each_slice(
    observe: Observe, notes_written: NoteTaker
) -> None:
    class Odd(Sampler):
        asked = 0

        def should_sample(self, *_: Any, **__: Any) -> SamplingResult:
            Odd.asked += 1
            return SamplingResult(Decision.RECORD_AND_SAMPLE if Odd.asked % 2 else Decision.DROP)

        def get_description(self) -> str:
            return "odd"

    memory = Memory(sampler=Odd())
    ran(observe(memory, slots=1, batch_records=1), *notes(*range(10)))
    assert len(written(memory, notes_written)) == 5
    assert Odd.asked == 10


def test_the_thread_is_not_woken_for_each_note() -> None:
    class Rests(threading.Event):
        def __init__(self) -> None:
            super().__init__()
            self.began, self.over = threading.Event(), threading.Event()

        def wait(self, timeout: float | None = None) -> bool:
            assert timeout == GATHER_S
            self.began.set()
            return self.over.wait(DEADLINE_S)

    taker, done = NoteTaker(), list[int]()
    taker._ends = rests = Rests()
    taker.take(lambda: done.append(0))
    assert rests.began.wait(DEADLINE_S)
    for number in range(1, 11):
        taker.take(lambda number=number: done.append(number))  # type: ignore[misc] # a default
    assert done == [0]
    rests.over.set()
    taker.end(DEADLINE_S)
    assert done == list(range(11))
