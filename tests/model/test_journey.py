"""A record's journey follows from its events, whatever their order and their clocks."""

from __future__ import annotations

from collections.abc import Iterator
from random import Random
from typing import Any

import attrs

from window_consumer.trace.event import TraceEvent
from window_consumer.trace.journey import Journey, Stop

BEGAN_US = 1_767_225_600_000_000
RETRY, AGAIN = "g.orders.retry.1s", "g.orders.retry.now"


def event(step: str, after_ms: float, topic: str = "orders", offset: int = 17, **more: Any) -> Any:
    fields: dict[str, Any] = {
        "event_id": f"w-{step}-{topic}-{offset}-{more.get('attempt')}-{more.get('group', 'g')}",
        "record_id": "orders/0/17",
        "root_id": "orders/0/17",
        "role": "consumer",
        "group": "g",
        "host": "10.0.0.1",
        "time_us": BEGAN_US + int(after_ms * 1000),
        "partition": 0,
        "orig_topic": "orders",
        "orig_partition": 0,
        "orig_offset": 17,
        **more,
    }
    return TraceEvent(step=step, topic=topic, offset=offset, **fields)


def sent(after_ms: float, **more: Any) -> Any:
    return event("sent", after_ms, role="producer", group=None, key="k", tags="a,b", **more)


def story() -> list[TraceEvent]:
    """A record that fails three times, is put back, and makes another one."""
    bill = {"record_id": "bill", "orig_topic": "bills", "orig_offset": 3}
    return [
        sent(5, duration_us=5000),
        event("received", 4),  # before the producer has its ack
        event("failed", 20, attempt=1, status="retry"),
        event("failed", 30, attempt=2, status="RETRIES_EXHAUSTED"),
        event("retried", 41, attempt=2),
        event("received", 40, RETRY, 1, host="10.0.0.2"),
        event("failed", 60, RETRY, 1, host="10.0.0.2", attempt=3, status="RETRIES_EXHAUSTED"),
        event("dead_lettered", 65, RETRY, 1, host="10.0.0.2", attempt=3),
        event("received", 9000, AGAIN, 2),
        event("redriven", 9000, AGAIN, 2),
        event("processed", 9010, AGAIN, 2, attempt=4),
        event("sent", 9008, "bills", 3, **bill, role="producer", group=None),
        event("processed", 9040, "bills", 3, **bill, group="billing", attempt=1),
        event("processed", 25, group="audit", attempt=1),
    ]


def stops(journey: Journey | None) -> Iterator[Stop]:
    assert journey is not None
    for passage in journey.passages:
        yield from passage.sent
        for way in passage.ways:
            for hop in way.hops:
                yield from hop.stops


def test_it_begins_with_the_send_and_follows_each_group_to_its_end() -> None:
    journey = Journey.of(story())
    assert journey is not None
    assert (journey.began_us, journey.lasted_us) == (BEGAN_US, 9_040_000)
    first, bill = journey.passages
    assert (first.record_id, first.key, first.tags) == ("orders/0/17", "k", "a,b")
    assert (first.place, bill.place) == (("orders", 0, 17), ("bills", 0, 3))
    assert [stop.event.step for stop in first.sent] == ["sent"]
    audit, mine = first.ways
    assert (audit.group, audit.end, audit.attempts) == ("audit", "processed", 1)
    assert (mine.group, mine.end, mine.attempts, mine.redrives) == ("g", "processed", 4, 1)
    assert [hop.place for hop in mine.hops] == [("orders", 0, 17), (RETRY, 0, 1), (AGAIN, 0, 2)]
    assert [[stop.event.step for stop in hop.stops] for hop in mine.hops] == [
        ["received", "failed", "failed", "retried"],
        ["received", "failed", "dead_lettered"],
        ["received", "redriven", "processed"],
    ]
    assert [way.group for way in bill.ways] == ["billing"]
    assert not journey.has_skew


def test_a_replay_comes_after_all_that_was_before_although_its_attempts_start_over() -> None:
    journey = Journey.of(
        [
            event("received", 1),
            event("failed", 2, attempt=1, status="RETRIES_EXHAUSTED"),
            event("retried", 3, attempt=1),
            event("received", 4, RETRY, 1),
            event("processed", 5, RETRY, 1, attempt=2),
            event("received", 9000, AGAIN, 2),
            event("replayed", 9000, AGAIN, 2),
            event("failed", 9001, AGAIN, 2, attempt=1, status="RETRIES_EXHAUSTED"),
            event("retried", 9002, AGAIN, 2, attempt=1),
            event("received", 9003, RETRY, 5),
            event("processed", 9004, RETRY, 5, attempt=2),
        ]
    )
    assert journey is not None
    ((way,),) = (passage.ways for passage in journey.passages)
    assert [hop.place for hop in way.hops] == [
        ("orders", 0, 17),
        (RETRY, 0, 1),
        (AGAIN, 0, 2),
        (RETRY, 0, 5),
    ]
    assert (way.replays, way.redrives, way.end) == (1, 0, "processed")


def test_events_that_come_late_twice_or_in_another_order_change_nothing() -> None:
    expected = Journey.of(story())
    rng = Random(7)
    for _ in range(300):
        reported = story() + rng.choices(story(), k=rng.randrange(6))
        rng.shuffle(reported)
        assert Journey.of(reported) == expected


def test_what_is_missing_leaves_the_order_of_the_rest_as_it_was() -> None:
    rng = Random(8)
    order = [stop.event for stop in stops(Journey.of(story()))]
    for _ in range(300):
        left = rng.sample(story(), rng.randrange(1, len(story())))
        kept = {each.event_id for each in left}
        expected = [each for each in order if each.event_id in kept]
        assert [stop.event for stop in stops(Journey.of(left))] == expected


def test_a_clock_that_is_wrong_changes_no_order_and_is_reported() -> None:
    order = [stop.event.event_id for stop in stops(Journey.of(story()))]
    for wrong_ms in (-3_600_000, 3_600_000):
        reported = [
            attrs.evolve(each, time_us=each.time_us + wrong_ms * 1000)
            if each.host == "10.0.0.2"
            else each
            for each in story()
        ]
        journey = Journey.of(reported)
        assert journey is not None
        assert [stop.event.event_id for stop in stops(journey)] == order
        assert journey.has_skew
        early = {stop.event.topic for stop in stops(journey) if stop.is_early}
        assert early == {RETRY if wrong_ms < 0 else AGAIN}


def test_a_record_that_came_once_more_after_a_crash_tells_of_no_wrong_clock() -> None:
    again = [event("received", 33_000, event_id="w2"), event("received", 33_000, RETRY, 1)]
    journey = Journey.of([*story(), *again])
    assert journey is not None
    assert not journey.has_skew


def test_what_has_not_ended_has_no_end() -> None:
    journey = Journey.of([event("received", 4), event("failed", 20, attempt=1, status="retry")])
    assert journey is not None
    (way,) = journey.passages[0].ways
    assert (way.end, way.went_wrong) == (None, False)
    journey = Journey.of(story()[:8])
    assert journey is not None
    (way,) = journey.passages[0].ways
    assert (way.end, way.went_wrong) == ("dead_lettered", True)
    assert Journey.of([]) is None
