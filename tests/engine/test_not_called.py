"""Records that no handler is called for: they leave at once, and say nothing of the handlers."""

from __future__ import annotations

from typing import Any

import pytest

from tests.engine.driver import Driven
from tests.engine.support import failure, notes, spent_after
from tests.golden_texts import Golden
from window_consumer.engine.retry.copy_record import CopyOrigin, Target, copy_of
from window_consumer.engine.retry.failed_record import Detail
from window_consumer.engine.retry.retry_topics import Level
from window_consumer.model.errors import Expired, Fatal, NotCalled, PublishFailedError, Unroutable
from window_consumer.model.fault import Failure, Fault
from window_consumer.model.headers import Reason


def after(error: NotCalled, **rules: Any) -> Driven:
    """Drive one record to the point where its layers have raised."""
    driven = Driven(retry=spent_after(3, **rules))
    driven.deliver(*notes(0))
    driven.tick()
    driven.fail(driven.out[0], 0, error=error)
    driven.tick()
    return driven


@pytest.mark.parametrize("on_failure", ["block", "overtake"])
@pytest.mark.parametrize("when_spent", ["dead_letter", "drop", "stop"])
@pytest.mark.parametrize(
    ("error", "reason"), [(Expired("old"), Reason.EXPIRED), (Unroutable("odd"), Reason.UNROUTABLE)]
)
def test_it_leaves_for_the_dead_letters_at_once_whatever_the_ladder_says(
    error: NotCalled, reason: Reason, when_spent: str, on_failure: str
) -> None:
    driven = after(error, when_spent=when_spent, on_failure=on_failure)
    (failed,) = driven.last_published
    assert (failed.reason, failed.attempts) == (reason, 0)
    assert driven.committable == 0, "not before the ack"
    driven.copied(failed)
    counters = driven.engine.counters
    assert driven.committable == 1
    assert (counters.expired, counters.dead_lettered, counters.unroutable, counters.dropped) == (
        (1, 0, 0, 0) if reason is Reason.EXPIRED else (0, 1, 1, 0)
    )


def test_it_is_counted_when_its_copy_is_acked_and_not_before() -> None:
    driven = after(Expired("old"))
    assert driven.engine.counters.expired == 0


def test_an_expired_record_may_be_dropped_and_is_counted() -> None:
    driven = after(Expired("old", "drop"))
    counters = driven.engine.counters
    assert driven.last_published == []
    assert (counters.expired, counters.dropped, counters.dead_lettered) == (1, 0, 0)
    assert driven.committable == 1


def test_a_worker_may_stop_at_an_unroutable_record(golden: Golden) -> None:
    driven = after(Unroutable("is for none of the handlers a, b", "stop"))
    assert driven.last.stop is not None
    golden(str(driven.last.stop))
    assert driven.committable == 0


def test_a_record_that_expires_between_its_attempts_keeps_those_it_had() -> None:
    driven = Driven(retry=spent_after(3))
    driven.deliver(*notes(0))
    driven.tick()
    driven.fail(driven.out[0], 0)
    driven.tick(1.0)
    driven.fail(driven.out[0], 0, error=Expired("old"))
    failed = driven.published_one()
    assert (failed.reason, failed.attempts) == (Reason.EXPIRED, 1)


def test_its_lane_goes_on() -> None:
    driven = Driven(ordering="key", retry=spent_after(3, on_failure="block"))
    driven.deliver(*notes(0, 1, keys=[b"k", b"k"]))
    driven.tick()
    (slice_,) = driven.out
    (first, *_) = driven.claim(slice_, 1)
    slice_.deviate().failed.append((first, failure(Expired("old", "drop"))))
    driven.finish(slice_)
    driven.tick()
    driven.finish_all()
    assert driven.committable == 2


def test_a_fatal_error_still_follows_the_rules_of_the_ladder() -> None:
    driven = Driven(retry=spent_after(3, when_spent="drop"))
    driven.deliver(*notes(0))
    driven.tick()
    driven.fail(driven.out[0], 0, error=Fatal("no"))
    assert driven.published() == []
    assert (driven.engine.counters.dropped, driven.engine.counters.expired) == (1, 0)


@pytest.mark.parametrize(("handler", "named"), [("refunded", b"refunded"), ("", b"paid,refunded")])
def test_a_copy_names_the_handler_that_failed(handler: str, named: bytes) -> None:
    driven = after(Unroutable("odd"))
    (failed,) = driven.last_published
    failed.failure = Failure(ValueError(), Fault("ValueError", "", "", "f"), handler)
    origin = CopyOrigin("shop", "paid,refunded")
    copy = copy_of(failed, origin, Target("shop.orders.dlq", 1, 1), 0.0)
    assert dict(copy.headers)["wc-handler"] == named
    assert driven.failing()


@pytest.mark.parametrize("when_spent", ["dead_letter", "drop"])
def test_a_copy_that_is_too_large_may_refer_to_its_value(when_spent: str) -> None:
    driven = after(Expired("old"), when_spent=when_spent, on_oversize="reference")
    too_large = PublishFailedError("too large", too_large=True)
    for _ in range(2):
        (failed,) = driven.last_published
        driven.copied(failed, too_large)
        driven.tick()
    (failed,) = driven.last_published
    assert failed.detail is Detail.REFERENCE


def test_it_does_not_climb_to_a_retry_level() -> None:
    driven = after(Unroutable("odd"), levels=(Level("10s", 10.0),))
    (failed,) = driven.last_published
    assert (failed.level, failed.reason) == (None, Reason.UNROUTABLE)
