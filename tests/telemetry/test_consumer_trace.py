"""Each step of a record becomes an event that says all about it."""

from __future__ import annotations

from typing import Any

import pytest

from tests.engine.laddered import SHORT
from tests.engine.support import ORDERS, Note, failure, notes, spent_after, stalled_after
from tests.telemetry.tracing import Traced
from window_consumer.engine.guards.interventions import Intervention
from window_consumer.model.errors import Expired, Fatal, NoHandlerMatched, Skip, StalledError
from window_consumer.trace.sampling import Sampling, seed_of

PARENT = b"00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"


def test_a_record_is_received_and_processed() -> None:
    traced = Traced(slots=1)
    traced.driven.deliver(Note(7, b"anna"))
    traced.driven.tick()
    traced.driven.now += 0.25
    traced.driven.finish_all()
    received, processed = traced.events()
    assert (received.step, processed.step) == ("received", "processed")
    assert processed.time_us - received.time_us == pytest.approx(250_000, abs=2)
    assert received.duration_us is None
    assert processed.duration_us == pytest.approx(250_000, abs=2)
    for event in (received, processed):
        assert (event.topic, event.partition, event.offset) == (*ORDERS, 7)
        assert (event.record_id, event.key, event.group) == ("orders/0/7", "anna", "shop")
        assert (event.role, event.worker, event.sample) == ("consumer", "charge", 1.0)
    assert (processed.attempt, processed.handler, processed.status) == (1, "charge", "ok")


def test_headers_say_more_of_a_record() -> None:
    traced = Traced(slots=1)
    headers = [("wc-id", b"o-17"), ("wc-tags", b"gold,eu"), ("traceparent", PARENT), ("x", None)]
    traced.driven.deliver(Note(0, headers=headers), Note(1))
    traced.run()
    with_id, without = traced.events("received")
    assert (with_id.record_id, with_id.root_id, with_id.tags) == ("o-17", "o-17", "gold,eu")
    assert with_id.trace_id == "0af7651916cd43dd8448eb211c80319c"
    assert with_id.span_id == "b7ad6b7169203331"
    assert (without.record_id, without.tags, without.trace_id) == ("orders/0/1", None, None)


@pytest.mark.parametrize("parent", [b"", b"00-x", b"00-" + b"0" * 32 + b"-" + b"0" * 16 + b"-00"])
def test_what_is_no_traceparent_is_left_out(parent: bytes) -> None:
    traced = Traced(slots=1)
    traced.driven.deliver(Note(0, headers=[("traceparent", parent)]))
    traced.run()
    assert {event.trace_id for event in traced.events()} == {None}


def test_every_failed_call_and_the_end_are_reported_with_the_error() -> None:
    traced = Traced(slots=1, retry=spent_after(2))
    driven = traced.driven
    driven.deliver(*notes(0))
    for _ in range(2):
        driven.tick(10.0)
        driven.fail(driven.out[0], 0)
    copy = driven.published_one()
    driven.copied(copy)
    first, second, dead = traced.events()[1:]
    assert [e.step for e in (first, second, dead)] == ["failed", "failed", "dead_lettered"]
    assert [e.attempt for e in (first, second, dead)] == [1, 2, 2]
    assert [e.status for e in (first, second, dead)] == ["retry", *["RETRIES_EXHAUSTED"] * 2]
    assert (dead.error_class, dead.error_fingerprint) == ("ValueError", "f")


@pytest.mark.parametrize(
    ("action", "ends", "status"),
    [("report", False, "reported"), ("move", False, "abandoned"), ("retry", True, "ended")],
)
def test_a_call_that_does_not_return_is_reported_with_what_follows(
    action: Any, *, ends: bool, status: str
) -> None:
    traced = Traced(slots=1, stall=stalled_after(30.0, action=action, ends=ends))
    driven = traced.driven
    driven.deliver(*notes(0))
    driven.claim(driven.tick().dispatch[0])
    (stalled,) = driven.tick(30.0).stalled
    driven.engine.on_looked_at(stalled, failure(StalledError("does not return")), driven.now)
    (event,) = traced.events("stalled")
    assert (event.record_id, event.attempt, event.status) == ("orders/0/0", 1, status)
    assert event.duration_us == 30_000_000


def test_who_moves_to_a_retry_topic_is_retried_and_who_is_dropped_says_so() -> None:
    traced = Traced(slots=1, retry=spent_after(1, levels=(SHORT,)))
    traced.driven.deliver(*notes(0))
    traced.driven.tick()
    traced.driven.fail(traced.driven.out[0], 0)
    copy = traced.driven.published_one()
    traced.driven.copied(copy)
    assert [e.step for e in traced.events()] == ["received", "failed", "retried"]
    traced = Traced(slots=1, retry=spent_after(1, when_spent="drop"))
    traced.driven.deliver(*notes(0))
    traced.driven.tick()
    traced.driven.fail(traced.driven.out[0], 0, error=Fatal("no"))
    traced.driven.tick(1.0)
    assert [e.step for e in traced.events()] == ["received", "failed", "dropped"]


def test_what_expires_is_distinguished_whether_a_copy_is_kept_or_not() -> None:
    for error, keeps in ((Expired("too old"), True), (Expired("too old", "drop"), False)):
        traced = Traced(slots=1)
        traced.driven.deliver(*notes(0))
        traced.driven.tick()
        traced.driven.fail(traced.driven.out[0], 0, error=error)
        copies = traced.driven.published(1.0)
        assert bool(copies) is keeps
        for copy in copies:
            traced.driven.copied(copy)
        *_, last = traced.events()
        assert (last.step, last.status) == ("expired", "EXPIRED")


def test_what_was_put_back_by_hand_is_redriven() -> None:
    traced = Traced(slots=1)
    traced.driven.deliver(Note(0, headers=[("wc-redrives", b"1")]), Note(1))
    traced.run()
    assert [e.offset for e in traced.events("redriven")] == [0]
    assert [e.offset for e in traced.events("received")] == [0, 1]


@pytest.mark.parametrize(
    ("error", "step"), [(Skip(), "skipped"), (NoHandlerMatched(""), "filtered")]
)
def test_skipped_and_filtered_records_are_distinguished(error: Skip, step: str) -> None:
    traced = Traced(slots=1)
    traced.driven.deliver(*notes(0))
    (slice_,) = traced.driven.tick().dispatch
    slice_.deviate().skip(traced.driven.claim(slice_)[0], error)
    traced.driven.finish(slice_)
    called = (1, "charge") if step == "skipped" else (0, None)
    assert [(e.step, e.attempt, e.handler) for e in traced.events()] == [
        ("received", None, None),
        (step, *called),
    ]


@pytest.mark.parametrize("ordering", ["unordered", "key", "partition"])
@pytest.mark.parametrize("step", [1, 3])
def test_a_sample_has_all_steps_of_the_records_that_it_chooses(ordering: str, step: int) -> None:
    sampling = Sampling(0.1)
    traced = Traced(sampling, ordering=ordering, slots=4, retry=spent_after(1, on_failure="block"))
    offsets = range(100, 100 + 600 * step, step)
    for start in range(0, 600, 37):
        some = offsets[start : start + 37]
        keys = [str(offset % 7).encode() for offset in some]
        traced.driven.deliver(*notes(*some, keys=keys))
        traced.run()
    places = sampling.places(seed_of(*ORDERS), offsets[0], offsets[-1] + 1)
    expected = [offset for offset in places if offset in offsets]
    assert len(expected) > 5
    for name in ("received", "processed"):
        assert [event.offset for event in traced.events(name)] == expected
    assert {event.sample for event in traced.events()} == {0.1}
    assert None not in {event.duration_us for event in traced.events("processed")}


@pytest.mark.parametrize("order", [[6, 9, 8], [2, 1, 0], [0, 2, 1, 3], [8], [3, 0]])
def test_slices_of_lanes_may_be_in_any_order(order: list[int]) -> None:
    sampling = Sampling(0.5)
    traced = Traced(sampling, ordering="key", retry=spent_after(1, on_failure="block"))
    records = notes(*range(10))
    traced.driven.deliver(*records)
    (known,) = traced.trace._partitions.values()
    chosen = sampling.places(seed_of(*ORDERS), 0, 10)
    found = known.traced([records[index] for index in order])
    assert [each.offset() for each in found] == [index for index in order if index in chosen]


def test_records_with_ids_are_chosen_by_them_wherever_they_lie() -> None:
    chosen = []
    for first in (0, 5000):
        traced = Traced(Sampling(0.2), slots=1)
        ids = [f"id-{number}".encode() for number in range(100)]
        records = [Note(first + i, headers=[("wc-id", id_)]) for i, id_ in enumerate(ids)]
        traced.driven.deliver(*records)
        traced.run()
        chosen.append([event.record_id for event in traced.events("processed")])
    assert 5 < len(chosen[0]) < 40
    assert chosen[0] == chosen[1]


def test_by_key_all_records_of_a_key_are_chosen_or_none() -> None:
    traced = Traced(Sampling(0.3, "key"), slots=1)
    keys: list[bytes | None] = [str(number % 20).encode() for number in range(100)]
    traced.driven.deliver(*notes(*range(100), keys=keys))
    traced.run()
    found = [event.key for event in traced.events("received")]
    assert len(found) == 5 * len(set(found))
    assert 0 < len(set(found)) < 20


@pytest.mark.parametrize(("all_failures", "failed"), [(True, 1), (False, 0)])
def test_failures_are_reported_of_all_records_or_only_of_the_sample(
    all_failures: bool,  # noqa: FBT001 - the parameter of the test
    failed: int,
) -> None:
    traced = Traced(Sampling(0.000001), all_failures=all_failures, slots=1, retry=spent_after(2))
    traced.driven.deliver(*notes(0))
    traced.driven.tick()
    traced.driven.fail(traced.driven.out[0], 0)
    assert [event.sample for event in traced.events()] == [1.0] * failed


def test_keys_are_left_out_where_nobody_wants_them() -> None:
    traced = Traced(form=None, slots=1)
    traced.driven.deliver(Note(0, b"anna"))
    traced.run()
    assert {event.key for event in traced.events()} == {None}
    assert b"anna" not in b"".join(batch.data for batch in traced.way.batches)


def test_a_partition_that_is_given_up_is_forgotten() -> None:
    traced = Traced(slots=1)
    traced.driven.deliver(*notes(0))
    traced.driven.tick()
    traced.driven.engine.on_lost([ORDERS], traced.driven.now)
    traced.driven.finish(traced.driven.out[0])
    assert [event.step for event in traced.events()] == ["received"]
    assert not traced.trace._partitions


def test_what_is_remembered_does_not_grow() -> None:
    traced = Traced(Sampling(0.01), slots=1, window_cells=4, cell_records=100)

    known = next(iter(traced.trace._partitions.values()))
    for start in range(0, 5000, 50):
        traced.driven.deliver(*notes(*range(start, start + 50)))
        traced.run()
    assert len(known._firsts) <= 64
    assert len(known._chosen) <= 64 * 50 * 0.01 + 2


def test_what_was_noted_of_a_partition_that_is_given_up_is_written_and_nothing_is_kept() -> None:
    traced = Traced(slots=1)
    traced.driven.deliver(*notes(0, 1))
    traced.driven.tick()
    traced.driven.finish(traced.driven.out[0])
    traced.driven.engine.on_lost([ORDERS], traced.driven.now)
    assert [e.offset for e in traced.events("processed")] == [0]
    assert not traced.trace._inbox._lines


def test_a_record_that_a_person_skips_says_so() -> None:
    traced = Traced(slots=1, retry=spent_after(3))
    driven = traced.driven
    driven.deliver(*notes(0))
    driven.tick()
    driven.fail(driven.out[0], 0)
    driven.engine.on_intervention(ORDERS, 0, Intervention.SKIP, driven.now)
    skipped = traced.events()[-1]
    assert (skipped.step, skipped.status, skipped.attempt) == ("skipped", "MANUAL", 1)
    assert skipped.error_class == "ValueError"
