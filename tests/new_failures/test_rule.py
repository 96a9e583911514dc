"""The rule by itself: which failures count, and of which calls."""

from __future__ import annotations

from typing import Any

import pytest

from tests.engine.driver import Driven
from tests.engine.support import batches_of, notes, spent_after
from window_consumer.config.sections.guards import NewFailureConfig
from window_consumer.model.errors import Expired, RetryLater
from window_consumer.model.fault import Failure, Fault
from window_consumer.new_failures.rule import NewFailure, NewFailureRule


class Watched(Driven):
    """An Engine whose slot lets records fail with chosen fingerprints."""

    def __init__(self, known: str = "", rules: Any = None, **config: Any):
        given = {"action": "pause", "min_calls": 10, "share": 0.2, "window": 60.0, **config}
        engine = {"slots": 50, "retry": spent_after(3), **(rules or {})}
        super().__init__(**engine)
        self.found: list[NewFailure] = []
        self.accepted: list[str] = []
        self.rule = NewFailureRule(
            NewFailureConfig(**given),
            known.split(),
            self.found.append,
            lambda found: self.accepted.extend(each.fingerprint for each in found),
            is_batch="batch" in engine,
        )
        self.engine.obey([self.rule])
        self._next = 0

    def call(self, *fingerprints: str, error: BaseException | None = None) -> None:
        """Call new records in one tick; each fails with its fingerprint, or returns without."""
        messages = notes(*range(self._next, self._next + len(fingerprints)))
        self._next += len(fingerprints)
        self.deliver(*messages)
        self.tick()
        failing = dict(zip((each.offset() for each in messages), fingerprints, strict=True))
        for slice_ in [each for each in self.out if each.is_new]:
            for message in self.claim(slice_):
                if fingerprint := failing[message.offset()]:
                    fault = Fault("ValueError", "", "", fingerprint)
                    slice_.deviate().failed.append((message, Failure(error or ValueError(), fault)))
            self.finish(slice_)
        self.tick()

    def is_paused(self) -> bool:
        return self.engine.pauses.worker


@pytest.mark.parametrize(("returned", "is_too_much"), [(7, True), (8, False)])
def test_a_failure_counts_once_it_takes_more_than_its_share(
    *, returned: int, is_too_much: bool
) -> None:
    driven = Watched(min_calls=9)
    driven.call("a", "a", *[""] * returned)
    assert driven.is_paused() is is_too_much


def test_failures_wait_for_enough_calls_to_be_judged_by() -> None:
    driven = Watched()
    driven.call("a", "a", "a", "")
    assert not driven.is_paused()
    driven.call(*[""] * 6)
    assert [(each.failures, each.calls) for each in driven.found] == [(3, 10)]
    assert driven.is_paused()


def test_each_fingerprint_is_judged_by_itself() -> None:
    driven = Watched()
    driven.call("a", "b", "c", "d", "e", *[""] * 5)
    assert not driven.is_paused()


def test_known_failures_are_calls_like_others() -> None:
    driven = Watched(known="a")
    driven.call(*["a"] * 9, "b", "b", "b")
    assert [each.fingerprint for each in driven.found] == ["b"]
    assert driven.found[0].calls == 12


def test_retries_of_a_record_do_not_count() -> None:
    driven = Watched()
    driven.call("a", *[""] * 8)
    for _ in range(2):
        driven.tick(100.0)
        (again,) = driven.out
        driven.claim(again)
        failure = Failure(ValueError(), Fault("ValueError", "", "", "a"))
        again.deviate().failed.append((again.messages[0], failure))
        driven.finish(again)
    driven.call(*[""] * 2)
    assert driven.found == []


@pytest.mark.parametrize("error", [RetryLater(10.0), Expired("too old")])
def test_what_is_no_failure_does_not_count(error: BaseException) -> None:
    driven = Watched()
    driven.call(*["a"] * 12, error=error)
    assert driven.found == []


def test_old_calls_leave_the_window() -> None:
    driven = Watched()
    driven.call("a", "a", "a")
    driven.tick(70.0)
    driven.call(*[""] * 20)
    assert driven.found == []
    driven.call("a", "a", "a", "a", "a", "a")
    assert [(each.failures, each.calls) for each in driven.found] == [(6, 26)]


def test_a_batch_is_one_call() -> None:
    driven = Watched(rules={"batch": batches_of(5)}, min_calls=4)
    driven.call(*["a"] * 5)
    driven.call(*[""] * 5)
    driven.call(*[""] * 5)
    assert not driven.is_paused()
    driven.call(*[""] * 5)
    assert [(each.failures, each.calls) for each in driven.found] == [(1, 4)]


def test_what_was_accepted_pauses_no_more_and_another_failure_does() -> None:
    driven = Watched()
    driven.call(*["a"] * 10)
    driven.engine.on_halted(None, driven.now, halted=False)
    assert driven.accepted == ["a"]
    driven.call(*["a"] * 20)
    assert not driven.is_paused()
    driven.call(*["b"] * 20)
    assert driven.is_paused()
    assert [each.fingerprint for each in driven.found] == ["a", "b"]


def test_alert_finds_and_does_not_pause() -> None:
    driven = Watched(action="alert")
    driven.call(*["a"] * 10)
    assert not driven.is_paused()
    assert [each.pauses for each in driven.rule.findings()] == [False]
    assert driven.rule.figures.undecided == 1
    driven.engine.on_halted(None, driven.now, halted=False)
    assert driven.rule.findings() == []
