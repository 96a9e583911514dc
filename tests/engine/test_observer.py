"""Who listens to an Engine hears of everything, changes nothing, and may fail."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from tests.engine.driver import Driven
from tests.engine.support import ORDERS, failure, notes, spent_after
from window_consumer.engine.decisions import Assigned
from window_consumer.engine.guards.breaker_state import BreakerNews, BreakerRules
from window_consumer.engine.guards.stuck_calls import Stalled, StallRules
from window_consumer.engine.observer import Observer, Observers
from window_consumer.engine.partition import Partition
from window_consumer.engine.retry.failed_record import FailedRecord
from window_consumer.engine.scheduling.slices import Slice
from window_consumer.model.errors import NoHandlerMatched, Skip
from window_consumer.model.fault import Failure
from window_consumer.model.outcome import Outcome
from window_consumer.model.protocols import Commit
from window_consumer.model.record import Message


class Ear(Observer):
    """Writes down what it hears."""

    def __init__(self) -> None:
        self.received: list[tuple[Any, ...]] = []

    def assigned(self, partition: Partition, _now: float) -> None:
        self.received.append(("assigned", str(partition.name)))

    def given_up(self, partition: Partition, _now: float) -> None:
        self.received.append(("given up", str(partition.name)))

    def taken(self, _partition: Partition, messages: Sequence[Message], _now: float) -> None:
        self.received.append(("taken", *offsets(messages)))

    def gone(self, _partition: Partition, offsets: Sequence[range], _now: float) -> None:
        self.received.append(("gone", *offsets))

    def over(self, slice_: Slice, _now: float) -> None:
        self.received.append(("over", *offsets(slice_.messages)))

    def finished(
        self,
        _partition: Partition,
        messages: Sequence[Message],
        outcome: Outcome,
        slice_: Slice | None,
        _now: float,
    ) -> None:
        assert slice_ is None or slice_.started
        self.received.append((outcome.name.upper(), *offsets(messages)))

    def failed(self, failed: FailedRecord, now: float) -> None:
        assert now == failed.last_failure
        self.received.append(("failed", failed.message.offset(), failed.attempts))

    def left(self, failed: FailedRecord, outcome: Outcome, _now: float) -> None:
        self.received.append(("left", outcome.name.upper(), failed.message.offset()))

    def stalled(self, stalled: Stalled, _failure: Failure, _now: float) -> None:
        self.received.append(("stalled", stalled.abandon))

    def breaker(self, news: BreakerNews, _now: float) -> None:
        self.received.append(("breaker", news.state.value))

    def committing(self, _partition: Partition, commit: Commit, _now: float) -> None:
        self.received.append(("committing", commit.next_offset))

    def of(self, *kinds: str) -> list[tuple[Any, ...]]:
        return [each for each in self.received if each[0] in kinds]


def offsets(messages: Iterable[Message]) -> list[int]:
    return [message.offset() for message in messages]


def listened_to(**rules: Any) -> tuple[Driven, Ear]:
    driven = Driven(**rules)
    ear = Ear()
    driven.engine.observe(ear)
    return driven, ear


def test_records_are_reported_when_they_come_and_when_they_are_finished() -> None:
    driven, ear = listened_to(slots=1)
    driven.deliver(*notes(0, 1, 2))
    driven.tick()
    driven.finish_all()
    driven.tick(1.0)
    assert ear.of("taken") == [("taken", 0, 1, 2)]
    done = [offset for each in ear.of("DONE") for offset in each[1:]]
    assert sorted(done) == [0, 1, 2]
    assert ear.received[-1] == ("committing", 3)
    assert ear.of("over", "DONE")[0][0] == "over"


def test_what_was_skipped_is_distinguished_from_what_was_done() -> None:
    driven, ear = listened_to(slots=1, batch_records=10)
    driven.engine.dispatcher.length.records = 10
    driven.engine.dispatcher.length.cost_s = 1e-4
    driven.deliver(*notes(0, 1, 2))
    (slice_,) = driven.tick().dispatch
    claimed = driven.claim(slice_)
    slice_.deviate().skip(claimed[1], Skip())
    slice_.deviate().skip(claimed[2], NoHandlerMatched("is for none of the handlers"))
    driven.finish(slice_)
    received = ear.of("DONE", "SKIPPED", "FILTERED")
    assert received == [("DONE", 0), ("SKIPPED", 1), ("FILTERED", 2)]
    assert driven.engine.counters.skipped == 2


def test_a_record_that_fails_is_reported_at_each_call_and_when_it_has_left() -> None:
    driven, ear = listened_to(slots=1, retry=spent_after(2))
    driven.deliver(*notes(0))
    for _ in range(2):
        driven.tick(10.0)
        driven.fail(driven.out[0], 0)
    failed = driven.published_one()
    assert not ear.of("left")
    driven.copied(failed)
    assert ear.of("failed", "left") == [
        ("failed", 0, 1),
        ("failed", 0, 2),
        ("left", "DEAD_LETTERED", 0),
    ]


def test_records_that_ran_before_the_rest_was_taken_back_are_reported_once() -> None:
    driven, ear = listened_to(slots=1, batch_records=10)
    driven.engine.dispatcher.length.records = 10
    driven.engine.dispatcher.length.cost_s = 1e-4
    driven.deliver(*notes(0, 1, 2, 3))
    (slice_,) = driven.tick().dispatch
    driven.claim(slice_, 3)
    driven.engine.on_revoking([ORDERS], driven.now)
    assert ear.of("DONE") == [("DONE", 0, 1)]
    driven.finish(slice_)
    assert ear.of("DONE") == [("DONE", 0, 1), ("DONE", 2)]
    driven.engine.on_revoked([ORDERS], driven.now)
    assert ear.received[-2:] == [("committing", 0), ("given up", "orders[0]")]


def test_results_of_calls_whose_partition_is_gone_are_only_reported_as_over() -> None:
    driven, ear = listened_to(slots=1)
    driven.deliver(*notes(0))
    driven.tick()
    driven.engine.on_lost([ORDERS], driven.now)
    driven.finish(driven.out[0])
    assert [each[0] for each in ear.received] == ["taken", "given up", "over"]


def test_stalls_and_the_breaker_are_reported() -> None:
    rules = BreakerRules(min_calls=1, failures=0.5)
    driven, ear = listened_to(slots=2, stall=StallRules(after_s=5.0), breaker=rules)
    driven.deliver(*notes(0, 1))
    driven.tick()
    hangs, fails = driven.out
    driven.claim(hangs)
    driven.fail(fails, fails.messages[0].offset())
    for _ in range(4):
        for stalled in driven.tick(3.0).stalled:
            driven.engine.on_looked_at(stalled, failure(), driven.now)
    assert ear.of("stalled")
    assert ear.of("breaker")


def test_an_observer_that_raises_does_not_affect_the_others() -> None:
    class Deaf(Observer):
        def taken(self, *_: object) -> None:
            raise RuntimeError("no ears")

    ear, errors = Ear(), list[Exception]()
    driven = Driven(slots=1)
    observers = Observers([Deaf(), ear], errors.append)
    driven.engine.observe(observers)
    driven.deliver(*notes(0))
    driven.tick()
    driven.finish_all()
    assert ear.of("taken", "DONE") == [("taken", 0), ("DONE", 0)]
    assert [str(error) for error in errors] == ["no ears"]
    assert observers.failures == 1


def test_each_observer_gets_what_it_subscribes_to_and_the_others_are_not_asked() -> None:
    class Early(Observer):
        def __init__(self) -> None:
            self.received: list[int] = []

        def taken(self, _partition: Partition, messages: Sequence[Message], _now: float) -> None:
            self.received += offsets(messages)

    early, ear = Early(), Ear()
    observers = Observers([early, ear], errors_are_bugs)
    assert observers._overridden["taken"] == [early.taken, ear.taken]
    assert observers._overridden["over"] == [ear.over]
    driven = Driven(slots=1)
    driven.engine.observe(observers)
    driven.deliver(*notes(0))
    driven.tick()
    driven.finish_all()
    assert early.received == [0]
    assert ear.of("taken", "over", "DONE") == [("taken", 0), ("over", 0), ("DONE", 0)]


def errors_are_bugs(error: Exception) -> None:
    raise error


def test_of_what_is_gone_those_are_not_reported_that_were_finished_before() -> None:
    driven, ear = listened_to(slots=1)
    driven.engine.on_lost([ORDERS], driven.now)
    finished = (range(12, 14), range(19, 30))
    driven.engine.on_assigned([Assigned(ORDERS, 10, finished)], driven.now)
    driven.engine.on_gone(ORDERS, range(10, 20), driven.now)
    assert ear.of("gone") == [("gone", range(10, 12), range(14, 19))]
    assert driven.engine.counters.gone == 7
    driven.engine.on_gone(ORDERS, range(12, 14), driven.now)
    assert len(ear.of("gone")) == 1
