"""The parts of the circuit breaker, each driven by hand."""

from __future__ import annotations

from collections.abc import Hashable
from itertools import pairwise
from typing import Any

import pytest
from attrs import evolve

from window_consumer.engine.guards.breaker.call_round import CallRound
from window_consumer.engine.guards.breaker.cause_search import CauseSearch
from window_consumer.engine.guards.breaker.departures import (
    AT_ONCE,
    BESIDE_S,
    HOLD_S,
    MOST,
    SETTLE_S,
    Departure,
    Departures,
    SpentCall,
)
from window_consumer.engine.guards.breaker.load_search import ALL_SLOTS, CALM_ROUNDS, LoadSearch
from window_consumer.engine.guards.breaker.outage_evidence import FailedLanes, OutageEvidence
from window_consumer.engine.guards.breaker.outage_samples import SAMPLE_S, OutageSamples
from window_consumer.engine.guards.breaker_state import (
    NEXT,
    BreakerFinding,
    BreakerRules,
    BreakerState,
    Outlook,
)
from window_consumer.engine.guards.circuit_breaker import CircuitBreaker

FAILURES = 0.5
ERROR = "TimeoutError: no answer"


# ---- evidence


def seen(signs: str, **rules: float) -> OutageEvidence:
    evidence = OutageEvidence(rules.get("failures", FAILURES), 30.0, 20)
    for sign in signs:
        evidence.record(1, 0.0, failed=sign == "x", later=sign == "l")
    return evidence


def test_below_min_calls_failures_nothing_is_suspected() -> None:
    assert not seen("x" * 19).is_bad
    assert seen("x" * 20).is_bad


def test_half_of_the_calls_may_fail() -> None:
    assert not seen("x." * 20).is_bad
    assert seen("x." * 20 + "xx").is_bad


def test_with_all_as_the_threshold_all_have_to_fail() -> None:
    assert not seen("x" * 19 + "." + "x" * 19, failures=1.0).is_bad
    assert seen("x" * 20, failures=1.0).is_bad


def test_after_the_window_the_last_calls_are_forgotten() -> None:
    evidence = seen("x" * 19)
    evidence.record(1, 31.0, failed=1)
    assert not evidence.is_bad


def test_a_lane_counts_once_until_one_of_its_records_returns() -> None:
    lanes = FailedLanes()
    assert [lanes.is_repeat(b"hot", 1.0) for _ in range(3)] == [False, True, True]
    lanes.returned([b"other", b"hot"])
    assert [lanes.is_repeat(b"hot", 2.0) for _ in range(2)] == [False, True]
    lanes.clear()
    assert not lanes.is_repeat(b"hot", 3.0)
    assert [lanes.is_repeat(None, 3.0) for _ in range(2)] == [False, False]


def test_a_lane_counts_again_after_some_time() -> None:
    lanes = FailedLanes()
    lanes.is_repeat(b"hot", 0.0)
    assert lanes.is_repeat(b"hot", 61.0)
    assert not lanes.is_repeat(b"hot", 300.0)


# ---- departures


def spent(ended: float, *, took: float = 0.0, lane: Hashable = None, **more: bool) -> SpentCall:
    return SpentCall(lane, ended - took, ended - took, ended, **more)


def decided(departures: Departures, call: SpentCall, state: BreakerState, now: float) -> Departure:
    return departures.decide(call, state, now, in_a_hurry=False)


@pytest.mark.parametrize("state", [each for each in BreakerState if not each.charges])
def test_nothing_leaves_while_it_is_unclear_why_many_fail(state: BreakerState) -> None:
    departures = Departures()
    departures.began(10.0, None)
    assert decided(departures, spent(10.0, took=1.0), state, 20.0) is Departure.WAIT


def test_beside_poison_a_record_leaves_if_another_one_succeeded_beside_it() -> None:
    departures = Departures()
    departures.began(9.5, None)
    call = spent(10.0, took=1.0)
    assert decided(departures, call, BreakerState.POISON, 10.0) is Departure.LEAVE


def test_a_success_that_began_before_the_call_proves_nothing() -> None:
    departures = Departures()
    departures.began(8.9, None)
    call = spent(10.0, took=1.0)
    assert decided(departures, call, BreakerState.POISON, 10.0) is Departure.WAIT
    late = 10.0 + BESIDE_S
    assert decided(departures, call, BreakerState.POISON, late) is Departure.CALL_AGAIN


def test_a_success_of_its_own_lane_proves_nothing() -> None:
    departures = Departures()
    departures.began(9.5, b"key")
    call = spent(10.0, took=1.0, lane=b"key")
    assert decided(departures, call, BreakerState.POISON, 11.0) is Departure.CALL_AGAIN
    departures.began(9.5, b"other")
    assert decided(departures, call, BreakerState.POISON, 11.0) is Departure.LEAVE


def test_a_batch_that_fails_is_no_verdict_on_its_records() -> None:
    departures = Departures()
    departures.began(9.5, None)
    call = spent(10.0, took=1.0, alone=False)
    assert decided(departures, call, BreakerState.POISON, 10.0) is Departure.CALL_AGAIN


def test_a_record_that_cannot_be_called_again_leaves_at_the_next_success() -> None:
    departures = Departures()
    call = spent(10.0, took=1.0, last=True)
    assert decided(departures, call, BreakerState.POISON, 60.0) is not Departure.LEAVE
    departures.began(59.0, None)
    assert decided(departures, call, BreakerState.POISON, 60.0) is Departure.LEAVE


def test_the_first_failure_proves_nothing_if_there_was_an_outage_since() -> None:
    departures = Departures()
    departures.began(5.1, None)
    call = SpentCall(None, 5.0, 60.0, 60.0)
    assert decided(departures, call, BreakerState.POISON, 61.0) is Departure.LEAVE
    departures.doubt(30.0)
    assert decided(departures, call, BreakerState.POISON, 61.0) is Departure.CALL_AGAIN


def test_twenty_leave_without_a_success_and_no_more() -> None:
    departures = Departures()
    left = [
        decided(departures, spent(0.0), BreakerState.CLOSED, 1.0) is Departure.LEAVE
        for _ in range(2 * MOST)
    ]
    assert left == [True] * MOST + [False] * MOST
    assert departures.is_exhausted
    departures.succeeded()
    assert decided(departures, spent(0.0), BreakerState.CLOSED, 1.0) is Departure.LEAVE


def test_more_than_a_few_leave_a_moment_later() -> None:
    departures = Departures()
    verdicts = [
        decided(departures, spent(1.0), BreakerState.CLOSED, 1.0) for _ in range(AT_ONCE + 1)
    ]
    assert verdicts == [Departure.LEAVE] * AT_ONCE + [Departure.WAIT]
    assert spent(1.0).settled_at(BreakerState.CLOSED) == 1.0 + SETTLE_S
    settled = decided(departures, spent(1.0), BreakerState.CLOSED, 1.0 + SETTLE_S)
    assert settled is Departure.LEAVE


def test_a_record_that_asked_to_be_called_later_leaves_after_a_hold() -> None:
    departures = Departures()
    call = spent(1.0, later=True)
    assert decided(departures, call, BreakerState.CLOSED, 1.0) is Departure.WAIT
    assert decided(departures, call, BreakerState.CLOSED, 1.0 + HOLD_S) is Departure.LEAVE
    assert not departures.since_success


# ---- rounds


def rounds_of(*calls: tuple[str, Hashable, bool]) -> CallRound:
    """Return a round of calls: their kind, their lane, and whether they succeeded."""
    seen_round = CallRound(len(calls), 0.0)
    for kind, lane, ok in calls:
        source = object()
        seen_round.start(source, 1, kind, 1)
        if ok:
            seen_round.returned(source, [lane])
        else:
            seen_round.failed(source, lane)
        seen_round.over(source)
    return seen_round


def test_poison_needs_successes_in_three_lanes_where_there_are_three() -> None:
    two = [("new", b"1", True), ("new", b"2", True)]
    assert rounds_of(*two).some_succeed(FAILURES)
    assert not rounds_of(*two, ("new", b"3", False)).some_succeed(FAILURES)
    assert rounds_of(*two, ("new", b"3", True), ("new", b"4", False)).some_succeed(FAILURES)


def test_each_place_of_the_windows_is_judged_by_itself() -> None:
    front = [("first", None, False)] * 10
    back = [("last", None, True)] * 3
    assert rounds_of(*front, *back).some_succeed(FAILURES)
    assert rounds_of(*front, *back).only_some_succeed(FAILURES)
    assert not rounds_of(*back, ("first", None, True), *front).only_some_succeed(FAILURES)


def test_a_round_waits_for_slow_successes_but_not_for_ever() -> None:
    slow = CallRound(2, 0.0)
    quick, late = object(), object()
    for source in (quick, late):
        slow.start(source, 1, "new", 1)
    slow.failed(quick, None)
    slow.over(quick)
    assert not slow.is_over(5.0, 30.0, starved=True)
    assert slow.is_over(30.0, 30.0, starved=False)
    assert slow.bad == 2
    slow.returned(late, [None])
    slow.over(late)
    assert slow.is_over(5.0, 30.0, starved=False)


def test_calls_from_before_the_round_are_not_counted() -> None:
    asked = CallRound(20, 0.0)
    asked.returned(object(), [None])
    asked.failed(object(), None)
    assert (asked.ok, asked.bad) == (0, 0)


def test_of_each_kind_no_more_count_than_wanted() -> None:
    """Else those that fail at once would fill the round before others begin."""
    seen_round = CallRound(6, 0.0, of_each=3)
    for kind in ["first"] * 10 + ["last"] * 2:
        source = object()
        seen_round.start(source, 1, kind, 1)
        seen_round.failed(source, None)
        seen_round.over(source)
    assert seen_round.started == 5
    assert not seen_round.has_kinds(2)
    seen_round.start("third", 1, "last", 7)
    assert seen_round.has_kinds(2)
    assert seen_round.crowd == 7
    assert not seen_round.is_over(0.0, 30.0, starved=False)


# ---- the search for the cause


READY = Outlook(slots=64, new=True, more=True, ready=True, failed=True)


def find(capacity: int, poison: tuple[str, ...] = (), rounds: int = 50) -> BreakerFinding:
    """Search with a service that fails above ``capacity`` calls at once, and in some places."""
    search = CauseSearch(BreakerRules())
    search.begin(0.0, READY.slots, READY.slots)
    for step in range(rounds):
        seen_round = search.round
        assert seen_round is not None
        running = search.limit or READY.slots
        # The slots that find room hold it: of those beside them, none succeeds.
        room = 0 if search.limit is None and capacity < running else capacity
        while seen_round.started < seen_round.target:
            source = object()
            kind = ("new", "last", "middle")[seen_round.started % 3]
            seen_round.start(source, 1, kind, running)
            if seen_round.started % running < room and kind not in poison:
                seen_round.returned(source, [None])
            else:
                seen_round.failed(source, None)
            seen_round.over(source)
        if (finding := search.judge(0.1 * step, READY)) is not None:
            return finding
    pytest.fail("nothing was found")


def test_records_of_some_places_that_fail_beside_others_are_poison() -> None:
    assert find(64, ("new",)).state is BreakerState.POISON


def test_it_is_an_outage_when_nothing_succeeds_however_few_run() -> None:
    assert find(0) == BreakerFinding(BreakerState.OPEN, "20 of 20 calls failed")


@pytest.mark.parametrize("capacity", [12, 20, 40])
def test_it_is_an_overload_when_nothing_succeeds_but_with_fewer_calls(capacity: int) -> None:
    assert find(capacity).state is BreakerState.OVERLOAD


def test_one_success_among_failures_is_no_proof_of_poison() -> None:
    """... in a service that answers now and then."""
    search = CauseSearch(BreakerRules())
    search.begin(0.0, 16, 16)
    findings = []
    for step in range(4):
        seen_round = search.round
        assert seen_round is not None
        while seen_round.started < seen_round.target:
            source = object()
            seen_round.start(source, 1, "new", 16)
            if seen_round.started == 1 and step == 1:
                seen_round.returned(source, [b"key"])
            else:
                seen_round.failed(source, b"%d" % seen_round.started)
            seen_round.over(source)
        findings.append(search.judge(0.2 * step, Outlook(16, True, True, True, True)))
    found = [each.state for each in findings if each is not None]
    assert found == [BreakerState.OPEN]


def test_successes_while_few_calls_run_say_nothing_about_many() -> None:
    search = CauseSearch(BreakerRules())
    search.begin(0.0, 64, 64)
    seen_round = search.round
    assert seen_round is not None
    for number in range(20):
        source = object()
        kind = ("new", "last")[number % 2]
        seen_round.start(source, 1, kind, 6)
        if kind == "last":
            seen_round.returned(source, [None])
        else:
            seen_round.failed(source, None)
        seen_round.over(source)
    finding = search.judge(0.1, READY)
    assert finding is not None
    assert finding.state is BreakerState.OVERLOAD
    assert search.calls == 6


# ---- the search for the load


def run(search: LoadSearch, capacity: int, rounds: int, slots: int = 64) -> list[BreakerFinding]:
    """Let rounds pass of a service that fails above ``capacity`` calls at once."""
    found: list[BreakerFinding] = []
    for now in range(rounds):
        for index in range(search.limit):
            source = object()
            for each in search.rounds:
                each.start(source, 1, index % 3, search.limit)
                if index < capacity:
                    each.returned(source, [None])
                else:
                    each.failed(source, None)
                each.over(source)
        finding = search.judge(float(now), evolve(READY, slots=slots))
        if finding is not None:
            found.append(finding)
            if finding.state is not BreakerState.OVERLOAD:
                break
    return found


def states(found: list[BreakerFinding]) -> list[BreakerState]:
    return [each.state for each in found]


def test_the_number_of_calls_doubles_up_to_all_slots() -> None:
    search = LoadSearch(BreakerRules())
    search.begin(2, 0.0)
    assert run(search, 64, 20) == [BreakerFinding(BreakerState.POISON, ALL_SLOTS)]


def test_a_round_without_a_success_ends_it() -> None:
    search = LoadSearch(BreakerRules())
    search.begin(2, 0.0)
    assert states(run(search, 0, 20)) == [BreakerState.OPEN]


def test_an_overload_is_found_and_its_capacity_nearly_used() -> None:
    search = LoadSearch(BreakerRules())
    search.begin(2, 0.0)
    assert BreakerState.OVERLOAD in states(run(search, 20, 12))
    used = []
    for _ in range(10 * CALM_ROUNDS):
        run(search, 20, 1)
        used.append(min(search.limit, 20))
    assert sum(used[50:]) / len(used[50:]) >= 0.8 * 20


def test_what_was_too_much_is_tried_ever_more_rarely() -> None:
    search = LoadSearch(BreakerRules())
    search.begin(16, 0.0, usual_share=0.0)
    tried = []
    for step in range(1000):
        if search.limit > 23:  # of 23, few enough fail
            tried.append(step)
        run(search, 20, 1)
    pauses = [after - before for before, after in pairwise(tried) if after > before + 1]
    assert pauses == sorted(pauses)
    assert pauses[-1] >= 8 * CALM_ROUNDS


def test_after_a_bad_moment_it_soon_uses_what_it_used_before() -> None:
    search = LoadSearch(BreakerRules())
    search.begin(16, 0.0, usual_share=0.0)
    run(search, 20, 40)
    before = search.limit
    run(search, 2, 1)
    assert search.limit < before
    run(search, 20, 4)
    assert search.limit >= before


def test_calls_that_fail_as_too_many_run_are_no_poison() -> None:
    search = LoadSearch(BreakerRules())
    search.begin(16, 0.0, usual_share=0.0)
    assert run(search, 20, 500) == []


def test_an_overload_that_is_over_ends() -> None:
    search = LoadSearch(BreakerRules())
    search.begin(8, 0.0, usual_share=0.0)
    assert run(search, 1000, 200, slots=16) == [BreakerFinding(BreakerState.POISON, ALL_SLOTS)]


# ---- samples


def test_a_due_sample_that_finds_no_record_keeps_the_loop_waiting() -> None:
    samples = OutageSamples(BreakerRules())
    samples.begin(0.0, again=False)
    for now in (0.0, 0.5, 10.0, 100.0, 1000.0):
        assert samples.next_due(now) > now


def test_samples_of_known_lanes_pause_ever_longer_and_others_go_out_soon() -> None:
    samples = OutageSamples(BreakerRules())
    samples.begin(0.0, again=False)
    for now, pause_s in ((0.0, SAMPLE_S), (20.0, 1.0), (100.0, 5.0), (6000.0, 30.0)):
        samples.started("call", now, b"lane")
        samples.over("call")
        assert not samples.is_due(now + 0.9 * SAMPLE_S, known=False)
        assert samples.is_due(now + 1.1 * SAMPLE_S, known=False)
        assert not samples.is_due(now + 0.9 * pause_s, known=True)
        assert samples.is_due(now + 1.1 * pause_s, known=True)
    assert samples.was_asked(b"lane")


def outlook(**more: Any) -> Outlook:
    return Outlook(slots=4, new=False, more=False, ready=True, failed=True, **more)


def test_held_records_leave_when_nothing_has_succeeded_for_max_hold_and_nothing_came() -> None:
    samples = OutageSamples(BreakerRules(max_hold_s=30.0))
    samples.begin(0.0, again=False)
    assert not samples.check_end(29.0, outlook())
    assert not samples.check_end(29.5, outlook(delivered=1))
    assert not samples.check_end(59.0, outlook(delivered=1))
    assert samples.check_end(60.0, outlook(delivered=1))
    assert samples.ends_hold
    samples.check_end(61.0, outlook(delivered=2))
    assert not samples.ends_hold


def test_with_lag_behind_full_windows_twenty_leave_each_max_hold() -> None:
    samples = OutageSamples(BreakerRules(max_hold_s=30.0))
    samples.begin(0.0, again=False)
    lagging = Outlook(slots=4, new=False, more=True, ready=True, failed=True)
    samples.check_end(30.0, lagging)
    for _ in range(20):
        assert samples.is_due(31.0, known=True)
        samples.let_go()
    assert not samples.is_due(31.0, known=True)
    samples.check_end(31.0, lagging)
    assert not samples.ends_hold
    assert not samples.check_end(60.0, lagging)
    assert samples.check_end(61.0, lagging)


def test_never_is_never() -> None:
    samples = OutageSamples(BreakerRules(max_hold_s=float("inf")))
    samples.begin(0.0, again=False)
    assert not samples.check_end(1e9, outlook())


# ---- all together


def a_breaker(**rules: Any) -> CircuitBreaker:
    return CircuitBreaker(BreakerRules(**rules), lambda: 4, lambda: 0, lambda _first, _last: 0)


def test_switched_off_it_never_does_anything() -> None:
    breaker = a_breaker(enabled=False)
    for _ in range(100):
        breaker.failed(1.0, ERROR)
    assert breaker.advance(2.0) == []
    assert breaker.departure(spent(2.0), 2.0) is Departure.LEAVE
    assert breaker.lets_start


@pytest.mark.parametrize("state", BreakerState)
def test_an_unknown_transition_raises_and_changes_nothing(state: BreakerState) -> None:
    breaker = a_breaker()
    breaker.state = state
    for other in set(BreakerState) - NEXT[state]:
        with pytest.raises(ValueError, match="cannot become"):
            breaker._enter(other, 1.0, "")
        assert breaker.state is state


def test_most_new_records_that_ask_to_be_called_later_pause_it() -> None:
    breaker = a_breaker()
    for _ in range(20):
        breaker.asked_later(1.0, 5.0)
    assert [each.state for each in breaker.advance(1.0, outlook())] == [
        BreakerState.HOLDING,
        BreakerState.PAUSED,
    ]
    assert breaker.limit == 0
    breaker.advance(5.9, outlook())
    assert breaker.state is BreakerState.PAUSED
    breaker.advance(6.0, outlook())
    assert (breaker.state, breaker.limit) == (BreakerState.HALF_OPEN, 1)


def test_a_pause_is_no_longer_than_a_cool_down() -> None:
    breaker = a_breaker(cool_down_s=2.0)
    for _ in range(20):
        breaker.asked_later(1.0, 50.0)
    breaker.advance(3.0, outlook())
    assert breaker.state is BreakerState.HALF_OPEN
