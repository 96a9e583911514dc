from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.golden_texts import Golden
from window_consumer.engine.retry.policy import Retry, RetryRules, Spent, Wait
from window_consumer.engine.retry.retry_topics import Level
from window_consumer.model.errors import Fatal, LeaseExpiredError, RetryLater
from window_consumer.model.headers import Reason


def no_jitter() -> float:
    return 0.0


class PaymentError(Exception):
    pass


class CardError(PaymentError):
    pass


@given(st.integers(1, 10_000), st.floats(0, 1, exclude_max=True))
def test_backoff_doubles_up_to_its_cap_less_a_quarter_of_jitter(n: int, jitter: float) -> None:
    rules = RetryRules(backoff_min_s=0.2, backoff_max_s=5.0)
    ceiling = min(0.2 * 2.0 ** min(n - 1, 60), 5.0)
    assert 0.75 * ceiling <= rules.backoff(n, lambda: jitter) <= ceiling


def test_a_record_is_called_as_often_as_attempts_says() -> None:
    rules = RetryRules(attempts=3)
    steps = [rules.next_step(ValueError(), n, no_jitter) for n in (1, 2, 3)]
    assert [type(step) for step in steps] == [Retry, Retry, Spent]
    assert steps[2] == Spent(Reason.RETRIES_EXHAUSTED)


def test_a_single_attempt_means_no_retry() -> None:
    assert RetryRules(attempts=1).next_step(ValueError(), 1, no_jitter) == Spent(
        Reason.RETRIES_EXHAUSTED
    )


def test_a_blocking_lane_retries_without_end() -> None:
    rules = RetryRules(attempts=1, on_failure="block", backoff_max_s=5.0)
    assert rules.next_step(ValueError(), 10_000, no_jitter) == Retry(5.0)


@pytest.mark.parametrize("on_failure", ["block", "overtake"])
def test_fatal_leaves_at_once_also_where_the_lane_blocks(on_failure: str) -> None:
    rules = RetryRules(on_failure=on_failure)  # type: ignore[arg-type] # one of the two literals
    assert rules.next_step(Fatal("no"), 1, no_jitter) == Spent(Reason.FATAL)


def test_listed_classes_count_with_their_subclasses() -> None:
    rules = RetryRules(fatal=(PaymentError,))
    assert rules.is_fatal(CardError())
    assert not rules.is_fatal(ValueError())


def test_the_most_specific_class_decides() -> None:
    assert not RetryRules(fatal=(PaymentError,), retryable=(CardError,)).is_fatal(CardError())
    assert RetryRules(fatal=(CardError,), retryable=(PaymentError,)).is_fatal(CardError())


def test_retry_later_waits_as_long_as_it_says_up_to_the_cap() -> None:
    rules = RetryRules(backoff_max_s=5.0)
    assert rules.next_step(RetryLater(3.0), 1, no_jitter) == Retry(3.0)
    assert rules.next_step(RetryLater(300.0), 1, no_jitter) == Retry(5.0)


def test_retry_later_counts_as_an_attempt() -> None:
    assert RetryRules(attempts=2).next_step(RetryLater(1.0), 2, no_jitter) == Spent(
        Reason.RETRIES_EXHAUSTED
    )


def test_the_schedule_lists_the_shortest_and_longest_wait_before_each_further_call() -> None:
    rules = RetryRules(attempts=4, backoff_min_s=1.0, backoff_max_s=3.0)
    assert rules.schedule() == [Wait(0.75, 1.0), Wait(1.5, 2.0), Wait(2.25, 3.0)]


def test_the_schedule_goes_on_through_all_levels() -> None:
    seconds, minutes = Level("10s", 10.0), Level("2m", 120.0)
    rules = RetryRules(
        attempts=2,
        backoff_min_s=1.0,
        backoff_max_s=1.0,
        levels=(seconds, minutes),
        attempts_per_level=2,
    )
    assert rules.schedule() == [
        Wait(0.75, 1.0),
        Wait(10.0, 11.0, seconds),
        Wait(0.75, 1.0, seconds),
        Wait(120.0, 121.0, minutes),
        Wait(0.75, 1.0, minutes),
    ]
    assert len(rules.schedule()) + 1 == sum(map(rules.allowed, (None, *rules.levels)))


def test_a_negative_delay_is_refused(golden: Golden) -> None:
    with golden.raises(ValueError):
        RetryLater(-1)


def test_a_lease_that_ends_spends_an_attempt_and_is_followed_by_no_wait() -> None:
    rules = RetryRules(attempts=3, backoff_min_s=60.0, backoff_max_s=60.0)
    error = LeaseExpiredError("the lease ended")
    assert [rules.next_step(error, n, no_jitter) for n in (1, 2)] == [Retry(0.0)] * 2
    assert rules.next_step(error, 3, no_jitter) == Spent(Reason.RETRIES_EXHAUSTED)
