from __future__ import annotations

from random import Random

import pytest

from window_consumer.engine.guards.circuit_breaker import (
    AT_ONCE,
    HOLD_S,
    PROBES,
    SETTLE_S,
    BreakerRules,
    BreakerState,
    CircuitBreaker,
)

ERROR = "TimeoutError: no answer"


class Watched:
    """A breaker, its clock, and the names of the states it came into."""

    def __init__(self, **rules: float):
        self.breaker = CircuitBreaker(BreakerRules(**rules))  # type: ignore[arg-type] # keyword arguments of the class
        self.now = 1000.0
        self.states: list[str] = []
        self.reasons: list[str] = []
        self.pardons = 0

    def calls(self, signs: str, each_s: float = 0.0) -> None:
        """Make calls.

        Of new records ``.`` returns, ``x`` fails, ``l`` asks to be called later; of those that
        failed before ``o`` returns and ``r`` fails.
        """
        for sign in signs:
            self.wait(each_s)
            self.end(sign)
        self.wait(0.0)

    def end(self, sign: str, source: object = None) -> None:
        if sign in ".o":
            self.breaker.returned(1, self.now, source, is_new=sign == ".")
        elif sign in "xr":
            self.breaker.failed(self.now, ERROR, source, is_new=sign == "x")
        elif sign == "l":
            self.breaker.asked_later(self.now, 5.0, source)

    def wait(self, seconds: float, *, may_retry: bool = False) -> None:
        self.now += seconds
        for news in self.breaker.advance(self.now, may_retry=may_retry):
            if news.why or news.state is not BreakerState.HALF_OPEN:
                self.states.append(news.state.value)
                self.reasons.append(news.why)
            self.pardons += news.pardon

    def probe(self, sign: str) -> None:
        """Make the call that finds out, as in ``calls``; ``-`` says nothing about the world."""
        probe, is_new = object(), sign not in "or"
        assert self.breaker.wants_probe if is_new else self.breaker.wants_trial
        self.breaker.probing(probe, self.now, is_new=is_new)
        assert not self.breaker.wants_trial
        self.end(sign, probe)
        self.breaker.probe_is_back(probe)
        self.wait(0.0)

    def wants_probe(self) -> bool:
        return self.breaker.wants_probe

    def lets_start(self) -> bool:
        return self.breaker.lets_start

    def lets_leave(self) -> bool:
        return self.breaker.lets_leave(self.now - 1.0, self.now)


def opened(**rules: float) -> Watched:
    watched = Watched(**rules)
    watched.calls("x" * 20)
    assert watched.states == ["holding", "open"]
    watched.states.clear()
    return watched


def test_it_opens_when_most_of_the_new_records_within_the_window_failed() -> None:
    watched = Watched()
    watched.calls(".x." * 3 + "x" * 15, 0.1)
    assert watched.states == ["holding", "open"]
    assert watched.reasons[-1] == (
        "16 of 22 new records failed within 30 s, the last one with TimeoutError: no answer"
    )
    assert not watched.lets_start()


def test_half_of_the_calls_may_fail() -> None:
    watched = Watched()
    watched.calls("x." * 500, 0.01)
    assert watched.states == []


def test_records_that_fail_again_and_again_neither_hold_nor_open_it() -> None:
    watched = Watched()
    watched.calls("r" * 1000, 0.01)
    watched.calls(("r" * 50 + "x..") * 50, 0.01)
    assert watched.states == []
    watched.calls("x" * 15 + "r" * 1000 + "x" * 5)
    watched.wait(HOLD_S)
    assert watched.states[-1] == "open"


@pytest.mark.parametrize("seed", range(20))
@pytest.mark.parametrize("each_s", [0.0, 0.001, 0.1, 1.0])
def test_three_bad_records_in_ten_do_not_open_it(seed: int, each_s: float) -> None:
    watched = Watched()
    rng = Random(seed)
    for _ in range(20):
        watched.calls("".join("x" if rng.random() < 0.3 else "." for _ in range(100)), each_s)
        watched.wait(HOLD_S)
        assert watched.lets_leave()
    assert "open" not in watched.states


@pytest.mark.parametrize("each_s", [0.001, 0.1])
def test_six_failures_in_ten_open_it(each_s: float) -> None:
    watched = Watched()
    watched.calls("." * 100, each_s)
    watched.calls("xx.x." * 200, each_s)
    assert "open" in watched.states


def test_fewer_than_min_calls_tell_nothing() -> None:
    watched = Watched()
    watched.calls("x" * 19)
    assert watched.states == []
    assert watched.lets_leave()
    watched.wait(31.0)
    watched.calls("x" * 19)
    assert watched.states == []


def test_calls_are_forgotten_when_the_window_is_over() -> None:
    watched = Watched()
    watched.calls("x" * 19)
    watched.wait(31.0 + 1.0)
    watched.calls("x", 0.0)
    assert watched.breaker.calls_within_window(watched.now) == (1, 1)
    assert watched.states == []


def test_with_all_as_the_threshold_it_opens_when_all_failed() -> None:
    watched = Watched(failures=1.0)
    watched.calls("x" * 19 + "." + "x" * 19)
    assert watched.states == []
    watched.wait(40.0)
    watched.calls("x" * 20)
    assert watched.states == ["holding", "open"]


def test_it_holds_while_most_of_the_last_calls_failed_although_the_window_looks_well() -> None:
    watched = Watched()
    watched.breaker.returned(1_000_000, watched.now)
    watched.calls("x" * 10)
    assert watched.states == []
    watched.calls("x")
    assert watched.states == ["holding"]
    assert watched.lets_start()
    assert not watched.lets_leave()
    watched.calls("." * 9)
    assert watched.states == ["holding"]
    watched.calls(".")
    assert watched.states == ["holding", "closed"]
    assert watched.lets_leave()


def test_it_opens_when_it_has_held_for_long_at_a_high_rate() -> None:
    watched = Watched()
    watched.breaker.returned(1_000_000, watched.now)
    watched.calls("x" * 100, HOLD_S / 80)
    assert watched.states == ["holding", "open"]
    assert watched.reasons[-1].startswith("20 of the last 20 new records failed, the last one with")


def test_it_opens_when_it_has_held_for_long_and_nothing_is_left_to_call() -> None:
    watched = Watched()
    watched.breaker.returned(1_000_000, watched.now)
    watched.calls("x" * 15)
    watched.wait(HOLD_S)
    assert watched.states == ["holding", "open"]


def test_what_failed_is_let_go_when_it_was_too_little_and_nothing_more_comes() -> None:
    watched = Watched()
    watched.calls("." * 1000 + "x" * 11 + "r" * 30)
    assert watched.states == ["holding"]
    assert not watched.lets_leave()
    watched.wait(HOLD_S)
    assert (watched.states, watched.pardons) == (["holding", "closed"], 0)
    assert watched.lets_leave()
    watched.calls("r" * 100)
    assert watched.lets_leave()


def test_after_that_the_next_new_record_that_fails_makes_it_hold_again() -> None:
    watched = Watched()
    watched.calls("." * 1000 + "x" * 11)
    watched.wait(HOLD_S)
    watched.calls("x")
    assert watched.states == ["holding", "closed", "holding"]
    watched.calls("xxx")
    watched.wait(HOLD_S)
    assert watched.states[3:] == ["open"]


def test_calls_that_are_made_again_hide_no_outage() -> None:
    watched = Watched()
    watched.breaker.returned(1_000_000, watched.now)
    watched.calls("x" * 11 + "or" * 100 + "x" * 9, HOLD_S / 200)
    watched.wait(HOLD_S)
    assert watched.states == ["holding", "closed", "holding", "open"]


def test_a_short_streak_of_failures_pardons_nobody_a_longer_one_does() -> None:
    watched = Watched()
    watched.calls("." * 100 + "x" * 15 + "." * 20)
    assert (watched.states, watched.pardons) == (["holding", "closed"], 0)
    watched.calls("x" * 15)
    watched.wait(HOLD_S / 2)
    watched.calls("." * 20)
    assert (watched.states[2:], watched.pardons) == (["holding", "closed"], 1)


def test_after_the_cool_down_one_call_that_returns_closes_it() -> None:
    watched = opened()
    watched.wait(29.9)
    assert watched.states == []
    assert not watched.wants_probe()
    watched.wait(0.1)
    assert watched.states == ["half-open"]
    assert (watched.lets_start(), watched.lets_leave()) == (False, False)
    watched.probe(".")
    assert watched.states == ["half-open", "closed"]
    assert watched.pardons == 2
    assert (watched.lets_start(), watched.lets_leave()) == (True, True)


def test_an_outage_that_is_over_does_not_count_any_more() -> None:
    watched = opened()
    watched.wait(30.0)
    watched.probe(".")
    watched.calls("x" * 19)
    assert watched.states == ["half-open", "closed"]


def test_it_opens_again_when_some_probes_failed() -> None:
    watched = opened()
    watched.wait(30.0)
    for _ in range(PROBES):
        watched.probe("x")
    assert watched.states == ["half-open", "open"]
    watched.wait(30.0)
    assert watched.states == ["half-open", "open", "half-open"]


def test_one_record_that_always_fails_does_not_keep_it_open() -> None:
    watched = opened()
    watched.wait(30.0)
    watched.probe("x")
    watched.probe(".")
    assert watched.states == ["half-open", "closed"]


def test_a_probe_that_says_nothing_is_followed_by_another() -> None:
    watched = opened()
    watched.wait(30.0)
    for _ in range(10):
        watched.probe("-")
    assert watched.states == ["half-open"]


def test_a_retry_that_fails_does_not_open_it_again_but_one_that_returns_closes_it() -> None:
    watched = opened()
    watched.wait(30.0)
    for _ in range(100):
        watched.probe("r")
    assert watched.states == ["half-open"]
    watched.probe("o")
    assert watched.states == ["half-open", "closed"]


def test_a_new_record_is_tried_beside_a_retry_and_decides() -> None:
    watched = opened()
    watched.wait(30.0)
    retry, new = object(), object()
    watched.breaker.probing(retry, watched.now, is_new=False)
    assert watched.wants_probe()
    watched.breaker.probing(new, watched.now)
    watched.end("o", retry)
    watched.breaker.probe_is_back(retry)
    assert not watched.lets_start()
    assert not watched.wants_probe()
    watched.end(".", new)
    assert watched.lets_start()


def test_a_retry_that_hangs_does_not_open_it_again() -> None:
    watched = opened()
    watched.wait(30.0)
    watched.breaker.probing(object(), watched.now, is_new=False)
    watched.wait(30.0, may_retry=True)
    assert watched.states == ["half-open"]
    assert watched.breaker.wants_trial


def test_while_it_is_half_open_what_was_spent_is_called_again_once_a_cool_down() -> None:
    watched = opened()
    watched.wait(30.0)
    for pardons in range(1, 4):
        assert watched.pardons == pardons
        watched.probe("r")
        watched.wait(30.0, may_retry=True)
    assert watched.states == ["half-open"]


def test_most_new_records_that_ask_to_be_called_later_pause_it() -> None:
    watched = Watched()
    watched.calls("." * 100 + "l" * 15)
    assert watched.states == ["holding", "paused"]
    assert watched.reasons[-1] == (
        "15 of the last 20 new records asked to be called later, for 5 s"
    )
    assert (watched.lets_start(), watched.lets_leave()) == (False, False)
    assert watched.breaker.spares
    watched.wait(4.9)
    assert not watched.wants_probe()
    watched.wait(0.1)
    watched.probe("l")
    watched.wait(5.0)
    watched.probe(".")
    assert watched.states[2:] == ["half-open", "paused", "half-open", "closed"]
    assert not watched.breaker.spares


def test_a_retry_that_asks_to_be_called_later_pauses_it_again() -> None:
    watched = Watched()
    watched.calls("l" * 20)
    watched.wait(5.0)
    retry = object()
    watched.breaker.probing(retry, watched.now, is_new=False)
    watched.breaker.asked_later(watched.now, 5.0, retry, is_new=False)
    watched.wait(0.0)
    assert watched.states[-2:] == ["half-open", "paused"]


def test_a_pause_is_no_longer_than_a_cool_down() -> None:
    watched = Watched(cool_down_s=2.0)
    watched.calls("l" * 20)
    watched.wait(2.0)
    assert watched.states[-1] == "half-open"


def test_few_that_ask_to_be_called_later_do_not_matter() -> None:
    watched = Watched()
    watched.calls("." * 20 + "xl..." * 100 + "l." * 500, 0.01)
    assert watched.states == []


def test_failures_after_a_pause_open_it() -> None:
    watched = Watched()
    watched.calls("l" * 20)
    watched.wait(5.0)
    for _ in range(PROBES):
        watched.probe("x")
    assert watched.states[-1] == "open"


def test_who_asked_to_be_called_later_leaves_when_it_is_clear_that_few_did() -> None:
    watched = Watched()
    now, breaker = watched.now, watched.breaker
    assert not breaker.lets_leave(now, now + HOLD_S / 2, later=True)
    assert breaker.lets_leave(now, now + HOLD_S, later=True)
    assert breaker.settled_at(now, later=True) == now + HOLD_S


def test_a_probe_that_hangs_counts_as_failed() -> None:
    watched = opened()
    watched.wait(30.0)
    probe = object()
    watched.breaker.probing(probe, watched.now)
    watched.wait(30.0)
    assert watched.states == ["half-open", "open"]
    watched.breaker.returned(1, watched.now, probe)
    watched.wait(0.0)
    assert watched.states == ["half-open", "open"]


def test_it_closes_when_nothing_is_left_to_call() -> None:
    watched = opened()
    watched.wait(30.0)
    watched.wait(30.0)
    assert watched.states == ["half-open", "closed"]


def test_calls_from_before_it_opened_decide_nothing() -> None:
    watched = opened()
    watched.calls("." * 50)
    assert watched.states == []
    watched.wait(30.0)
    watched.breaker.probing(object(), watched.now)
    watched.calls("x" * 50 + "." * 50)
    assert watched.states == ["half-open"]


def test_more_than_a_few_spent_records_leave_a_moment_later() -> None:
    watched = Watched()
    now = watched.now

    def leave(spent_at: float, now: float, *, in_a_hurry: bool = False) -> int:
        breaker = watched.breaker
        return sum(breaker.lets_leave(spent_at, now, in_a_hurry=in_a_hurry) for _ in range(100))

    assert leave(now, now) == AT_ONCE
    assert leave(now, now, in_a_hurry=True) == 100
    assert leave(now, now + SETTLE_S / 2) == 0
    assert leave(now, now + SETTLE_S) == 100
    assert leave(now + SETTLE_S, now + SETTLE_S) == AT_ONCE
    assert watched.breaker.settled_at(now) == now + SETTLE_S


def test_switched_off_it_never_does_anything() -> None:
    watched = Watched(enabled=False)
    watched.calls("x" * 10_000)
    watched.wait(100.0)
    assert watched.states == []
    assert watched.lets_leave()


@pytest.mark.parametrize("state", list(BreakerState))
def test_an_unknown_transition_raises_and_changes_nothing(state: BreakerState) -> None:
    breaker = CircuitBreaker(BreakerRules())
    breaker.state = state
    with pytest.raises(ValueError, match="cannot become"):
        breaker._enter(state, 0.0, "")
    assert breaker.state is state


def test_it_says_when_it_has_to_be_looked_at_again() -> None:
    watched = Watched()
    assert watched.breaker.next_look() == float("inf")
    watched.calls("x" * 20)
    assert watched.breaker.next_look() == watched.now + 30.0
