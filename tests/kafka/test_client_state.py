"""The life of a client that sends, as rules: replaced, emptied, made again after a pause."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from window_consumer.kafka.writing.client_state import (
    DRAIN_S,
    KEEPING,
    KEEPING_PAUSES_S,
    REPORTING,
    REPORTING_PAUSES_S,
    ClientPhase,
    ClientState,
    Emptying,
    ReplacementRules,
    UnexpectedEventError,
)


def open_state(rules: ReplacementRules) -> ClientState[str]:
    state = ClientState[str](rules)
    assert state.may_make(0.0)
    state.on_made()
    return state


def phase_of(state: ClientState[str]) -> ClientPhase:
    return state.phase


def fail(state: ClientState[str], now: float, *, is_explained: bool = False) -> float:
    """Let the client fail and be emptied; return how long there is none."""
    assert state.on_failed("no permission", now)
    if phase_of(state) is ClientPhase.EMPTYING:
        assert state.on_emptied(now, is_explained=is_explained) is not is_explained
    pause_s = 0.0
    while not state.may_make(now + pause_s):
        pause_s = round(pause_s + 0.05, 2)
    state.on_made()
    return pause_s


@pytest.mark.parametrize(
    ("rules", "pauses_s"), [(KEEPING, KEEPING_PAUSES_S), (REPORTING, REPORTING_PAUSES_S)]
)
def test_pauses_grow_while_clients_fail_one_after_another(
    rules: ReplacementRules, pauses_s: tuple[float, ...]
) -> None:
    state, now = open_state(rules), 1000.0
    for expected_s in (*pauses_s, pauses_s[-1]):
        pause_s = fail(state, now)
        assert pause_s == expected_s
        now += pause_s + 1
    assert fail(state, now + 61) == pauses_s[0]


def test_an_acknowledgement_ends_a_series_of_failures() -> None:
    state = open_state(REPORTING)
    assert [fail(state, now) for now in (1.0, 3.0)] == [0.5, 1.0]
    failures = [state.failure]
    state.on_worked()
    failures.append(state.failure)
    assert failures == ["no permission", None]
    assert fail(state, 6.0) == 0.5


def test_a_refused_record_explains_a_failure_and_delays_nothing() -> None:
    state = open_state(KEEPING)
    assert [fail(state, now, is_explained=True) for now in (1.0, 2.0, 3.0)] == [0.0] * 3


def test_where_order_counts_the_old_client_is_empty_before_the_new_one_sends() -> None:
    state = open_state(KEEPING)
    state.on_lost(5.0)
    assert phase_of(state) is ClientPhase.EMPTYING
    assert not state.may_make(1e9)
    with pytest.raises(UnexpectedEventError):
        state.on_made()
    assert not state.on_emptied(6.0)
    assert state.may_make(6.0)


def test_records_in_flight_may_arrive_for_a_moment() -> None:
    state = open_state(KEEPING)
    assert state.emptying(0.0, is_failed=False) is Emptying.WAIT
    assert state.emptying(1.0, is_failed=True) is Emptying.PURGE_QUEUED
    assert state.emptying(DRAIN_S, is_failed=False) is Emptying.PURGE_ALL
    assert open_state(REPORTING).emptying(0.0, is_failed=False) is Emptying.PURGE_ALL


def test_a_client_fails_once() -> None:
    state = open_state(KEEPING)
    assert state.on_failed("first", 1.0)
    assert not state.on_failed("second", 2.0)
    assert not state.on_lost(2.0)
    assert state.failure == "first"
    state.on_emptied(2.0)
    assert not state.on_failed("third", 3.0)


EVENTS = st.lists(st.sampled_from(["failed", "lost", "emptied", "made", "worked", "wait"]))


@given(st.sampled_from([KEEPING, REPORTING]), EVENTS)
def test_there_is_one_client_at_most_and_closing_empties_it(
    rules: ReplacementRules, events: list[str]
) -> None:
    state, now = ClientState[str](rules), 0.0
    is_open = is_full = False
    for event in events:
        now += 1.0
        if event == "made" and state.may_make(now):
            assert not is_open
            assert not (is_full and rules.waits_for_old)
            state.on_made()
            is_open = True
        elif (event == "failed" and state.on_failed("why", now)) or (
            event == "lost" and state.on_lost(now)
        ):
            is_open, is_full = False, True
        elif event == "emptied" and state.phase is ClientPhase.EMPTYING:
            state.on_emptied(now)
            is_full = False
        elif event == "worked":
            state.on_worked()
        elif event == "wait":
            now += 100.0
            waits = phase_of(state) is ClientPhase.EMPTYING
            assert waits or is_open or state.may_make(now)
        assert is_open == (phase_of(state) is ClientPhase.OPEN)
    state.on_close()
    assert state.emptying(0.0, is_failed=False) is Emptying.PURGE_ALL
    assert not state.may_make(1e9)
    assert not state.on_failed("why", now)
    state.on_made()
    assert phase_of(state) is ClientPhase.CLOSED
