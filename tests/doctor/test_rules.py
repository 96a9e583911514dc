"""The rules of the diagnosis, on made-up pictures: each cause alone, and what is none."""

from __future__ import annotations

import json
from typing import Any

import pytest
from attrs import evolve

from tests.doctor.made_up import (
    ORDERS,
    OTHERS,
    Step,
    breaker,
    call,
    calls,
    evidence,
    partition,
    stack,
    working,
)
from tests.golden_texts import Golden
from window_consumer.admin.doctor.diagnosis import diagnose
from window_consumer.admin.doctor.evidence import WorkerEvidence
from window_consumer.admin.doctor.samples import GroupLook
from window_consumer.engine.guards.pause_rule import RuleFinding
from window_consumer.engine.windows_snapshot import (
    CellSnapshot,
    CellState,
    LimitSnapshot,
    LoopSnapshot,
    ParkedKey,
    ParkedKeys,
    PartitionSnapshot,
    PauseSnapshot,
)
from window_consumer.plan.diagnosis import LikelyCause
from window_consumer.runtime.figures.worker_snapshot import FailingRecord


def found(seen: WorkerEvidence) -> list[str]:
    return [str(cause.kind) for cause in diagnose([seen]).causes]


def figures(cause: LikelyCause, *names: str) -> list[object]:
    """Return figures that the sentence rests on, and sentences show."""
    return [pytest.approx(cause.figures[name]) for name in names]


def the_cause(seen: WorkerEvidence, kind: str) -> LikelyCause:
    (cause,) = diagnose([seen]).causes
    assert cause.kind == kind
    assert cause.sentence in "\n".join(diagnose([seen]).as_text())
    return cause


# ---- no broker


def test_where_no_broker_answers_an_idle_worker_is_not_called_well() -> None:
    cause = the_cause(evidence(is_cluster_silent=True), "broker_away")
    assert figures(cause, "within_s") == [10.0]
    step = working(busy=0.0, per_s=0)
    starving = evidence(step, is_cluster_silent=True, round_trips_s=[2.0, 2.0])
    assert found(starving)[0] == "broker_away"
    assert "broker_slow" not in found(starving)


def test_where_only_who_looks_reaches_no_broker_a_worker_that_works_is_well() -> None:
    step = working(busy=0.5, per_s=100, lag=lambda _: 10)
    assert found(evidence(step, is_cluster_silent=True)) == []


# ---- nothing is wrong


def test_a_worker_with_nothing_to_do_is_well() -> None:
    diagnosis = diagnose([evidence()])
    assert diagnosis.causes == ()
    assert diagnosis.well[0].startswith("charge: ")


def test_records_that_are_in_hand_are_no_lag() -> None:
    assert found(evidence(working(busy=1.0, per_s=1000, lag=lambda _: 1500))) == []


def test_lag_that_comes_and_goes_is_none() -> None:
    def lag(second: int) -> int:
        return 0 if second == 5 else 5000

    assert found(evidence(working(busy=1.0, per_s=10, lag=lag))) == []


def test_who_catches_up_within_a_minute_is_well_and_says_so() -> None:
    seen = evidence(working(busy=1.0, per_s=400, lag=lambda second: 9000 - 400 * second))
    assert found(seen) == []
    assert "12 s" in diagnose([seen]).well[0]


# ---- too little gets done


def test_a_handler_too_slow_for_its_concurrency_by_littles_law() -> None:
    seen = evidence(working(busy=1.0, per_s=160, lag=lambda second: 5000 + 90 * second))
    cause = the_cause(seen, "handler_slow")
    assert figures(cause, "seconds_a_record", "arriving_per_s") == [0.05, 250.0]
    assert figures(cause, "needed_slots", "slots", "busy_ratio") == [12.5, 8.0, 1.0]
    assert "15" in cause.sentence


def test_a_long_backlog_with_all_slots_busy_is_the_handlers_too() -> None:
    seen = evidence(working(busy=1.0, per_s=100, lag=lambda second: 90_000 - 100 * second))
    sentence = the_cause(seen, "handler_slow").sentence
    assert all(figure in sentence for figure in ("89000", "890 s"))


def test_with_concurrency_auto_nobody_is_asked_to_raise_it() -> None:
    step = working(busy=1.0, per_s=100, lag=lambda second: 90_000 - 100 * second)
    limit = LimitSnapshot(8, 8, "more calls at once are no faster")
    seen = evidence(lambda second: {**step(second), "limit": limit})
    sentence = the_cause(seen, "handler_slow").sentence
    assert all(each in sentence for each in ("auto", "8", "(more calls at once are no faster)"))
    assert "raise concurrency" not in sentence


def test_where_no_call_returns_their_age_is_reported() -> None:
    step = working(busy=1.0, per_s=0)
    seen = evidence(lambda second: {**step(second), "calls": (call(12.0),)})
    assert "12 s" in the_cause(seen, "handler_slow").sentence


def test_threads_that_compute_are_bound_by_one_interpreter() -> None:
    step = working(busy=0.6, per_s=100, cores=0.95)
    cause = the_cause(evidence(step), "gil_bound")
    assert figures(cause, "slots", "cores") == [8.0, 0.95]
    assert "pool: processes" in cause.sentence


@pytest.mark.parametrize(
    ("pool", "cores", "slots"),
    [("processes", 0.95, 8), ("threads", 0.1, 8), ("threads", 1.9, 8), ("threads", 0.95, 1)],
)
def test_who_waits_or_has_processes_or_one_slot_is_not(pool: str, cores: float, slots: int) -> None:
    step = working(busy=1.0, per_s=100, cores=cores, slots=slots)
    assert found(evidence(step, pool=pool)) == ["handler_slow"]


def loop(cores: float, late: float) -> Step:
    step = working(busy=1.0, per_s=100)
    return lambda second: {**step(second), "loop": LoopSnapshot(cores * second, late * second)}


def test_coroutines_that_compute_are_bound_by_their_event_loop() -> None:
    cause = the_cause(evidence(loop(cores=0.97, late=0.6)), "loop_bound")
    assert figures(cause, "cores") == [0.97]
    assert "pool: processes" in cause.sentence


def test_coroutines_that_do_not_give_their_event_loop_back() -> None:
    cause = the_cause(evidence(loop(cores=0.05, late=0.6)), "loop_blocked")
    assert figures(cause, "late", "cores") == [0.6, 0.05]
    assert "asyncio.to_thread" in cause.sentence
    assert found(evidence(loop(cores=0.05, late=0.6), looks=1)) != ["loop_blocked"]


def test_coroutines_that_only_wait_are_too_slow_for_their_concurrency() -> None:
    assert found(evidence(loop(cores=0.3, late=0.05))) == ["handler_slow"]


def parked(in_ladder_s: float, followers: int = 5, copy: str = "") -> WorkerEvidence:
    """A worker with three keys in the ladder, of which others wait behind one."""
    key = ParkedKey(ORDERS, 17, "anna", in_ladder_s, followers, copy)
    keys = ParkedKeys(3, followers, (key,) if followers else ())
    return evidence(lambda _: {"parked": keys}, ordering="key", admin_url="http://shop:8090")


def test_parked_keys_their_head_and_what_waits_behind_it(golden: Golden) -> None:
    cause = the_cause(parked(240.0, copy="g.orders.retry.10s/0/3"), "parked_keys")
    assert cause.partition == ORDERS
    assert figures(cause, "keys", "waiting", "waiting_for_key") == [3, 5, 5]
    assert figures(cause, "offset", "in_ladder_s") == [17, 240.0]
    assert cause.figures["key"] == "anna"
    assert (
        "--worker charge --url http://shop:8090 --record g.orders.retry.10s/0/3" in cause.sentence
    )
    golden(cause.sentence)
    unread = the_cause(parked(240.0), "parked_keys")
    assert "--record" not in unread.sentence


def test_a_key_that_has_just_been_parked_or_that_nothing_waits_for_is_no_cause() -> None:
    assert found(parked(9.0)) == []
    assert found(parked(240.0, followers=0)) == []
    assert found(evidence(ordering="key")) == []


def test_one_hot_key() -> None:
    hot = partition(lag=None, open=400, longest_line=390, hottest_key="customer-1")
    cause = the_cause(
        evidence(working(busy=0.125, per_s=20, partitions=[hot]), ordering="key"), "hot_key"
    )
    assert cause.partition == ORDERS
    assert figures(cause, "waiting_for_key", "open", "busy_ratio") == [390, 400, 0.125]
    assert cause.figures["key"] == "customer-1"
    assert "'customer-1'" in cause.sentence


@pytest.mark.parametrize(
    "fields", [{"longest_line": 100}, {"longest_line": 6, "open": 7}], ids=["few", "next to none"]
)
def test_a_line_that_is_short_against_what_waits_is_no_hot_key(fields: dict[str, int]) -> None:
    seen: dict[str, Any] = {"open": 400, **fields}
    line = partition(lag=None, **seen)
    assert "hot_key" not in found(evidence(working(busy=0.5, per_s=20, partitions=[line])))


def test_with_all_slots_busy_no_key_is_to_blame() -> None:
    hot = partition(lag=None, open=400, longest_line=390)
    assert found(evidence(working(busy=1.0, per_s=20, partitions=[hot]))) == ["handler_slow"]


def test_one_hot_partition_in_partition_order() -> None:
    both = [partition(lag=None, open=50), partition(OTHERS, lag=10)]
    cause = the_cause(
        evidence(working(busy=0.2, per_s=20, partitions=both), ordering="partition"),
        "hot_partition",
    )
    assert cause.partition == ORDERS
    assert figures(cause, "lag", "lag_of_all") == [5000, 5010]
    assert "orders[0]" in cause.sentence


def test_one_partition_that_gets_most_of_what_is_written() -> None:
    both = [partition(lag=None, open=50), partition(OTHERS, lag=10)]
    cause = the_cause(evidence(working(busy=0.6, per_s=20, partitions=both)), "hot_partition")
    assert cause.partition == ORDERS
    assert figures(cause, "lag", "lag_of_all") == [5000, 5010]


def test_partitions_that_lag_alike_are_not_hot() -> None:
    both = [partition(lag=None, open=50), partition(OTHERS, lag=4000, open=50)]
    assert found(evidence(working(busy=0.6, per_s=20, partitions=both))) == ["unknown"]


def test_a_rate_that_holds_calls_back() -> None:
    held = partition(lag=None, open=500, waits_for_rate=True)
    cause = the_cause(evidence(working(busy=0.01, per_s=20, partitions=[held])), "rate")
    assert figures(cause, "finished_per_s") == [20.0]


def test_a_queue_that_no_client_reads_is_not_taken_for_a_slow_broker() -> None:
    step = working(busy=0.0, per_s=0, asking=0, partitions=[partition(lag=5000, unread=5000)])
    cause = the_cause(evidence(step), "no_clients")
    assert figures(cause, "lag", "leased", "finished_per_s") == [5000, 0.0, 0.0]
    asks = working(busy=0.0, per_s=0, asking=10, partitions=[partition(lag=5000, unread=5000)])
    assert "no_clients" not in found(evidence(asks))


# ---- something stands


def test_an_open_breaker_explains_what_waits_for_it(golden: Golden) -> None:
    held = partition(lag=None, open=500, failed=31, hovering_s=20.0)
    step = working(busy=0.0, per_s=0, partitions=[held], breaker=breaker("open"))
    diagnosis = diagnose([evidence(step)])
    assert diagnosis.causes[0].kind == "breaker_open"
    sentence = diagnosis.causes[0].sentence
    # The reason at the time that it opened: the figures of this moment may be below the limit.
    golden(sentence)
    assert "hovering" not in [cause.kind for cause in diagnosis.causes]


@pytest.mark.parametrize(
    ("seconds", "shown"),
    [
        (0.25, "250 ms"),
        (45.04, "45 s"),
        (300.0, "5 min"),
        (330.0, "5 min 30 s"),
        (7260, "2 h 1 min"),
    ],
)
def test_durations_have_the_units_that_people_use(seconds: float, shown: str) -> None:
    held = {"breaker": evolve(breaker("open"), seconds=seconds)}
    (cause,) = diagnose([evidence(lambda _: held)]).causes
    assert f"for {shown}: " in cause.sentence
    assert cause.figures["open_s"] == seconds


FULL = partition(
    lag=900, open=400, failed=31, capacity_cells=2, cells=(CellSnapshot(CellState.RETRYING, 0),) * 2
)


@pytest.mark.parametrize("state", ["open", "holding"])
def test_bad_records_that_fill_all_windows_need_somebody_who_decides(state: str) -> None:
    held = {"breaker": breaker(state), "partitions": [FULL, partition()]}
    cause = diagnose([evidence(lambda _: held)]).causes[0]
    assert (cause.kind, cause.figures["windows_full"]) == ("breaker_open", True)
    assert "`window-consumer breaker --worker charge --release`" in cause.sentence
    assert "`--hold`" in cause.sentence


def test_an_outage_that_somebody_has_declared_needs_no_decision() -> None:
    held = {"breaker": evolve(breaker("open"), declared=True), "partitions": [FULL, partition()]}
    cause = diagnose([evidence(lambda _: held)]).causes[0]
    assert "--release" in cause.sentence
    assert "--hold" not in cause.sentence


@pytest.mark.parametrize("held", [partition(), evolve(FULL, cells=FULL.cells[:1])])
def test_an_outage_without_full_windows_is_probably_one(held: PartitionSnapshot) -> None:
    of_now = {"breaker": breaker("open"), "partitions": [held]}
    (cause,) = diagnose([evidence(lambda _: of_now)]).causes
    assert not cause.figures["windows_full"]
    assert "`window-consumer breaker --worker charge --release`" in cause.sentence
    assert "--hold" not in cause.sentence


@pytest.mark.parametrize(
    ("state", "says"),
    [
        ("half-open", "each successful round allows more"),
        ("paused", "until the requested delay is over"),
    ],
)
def test_a_breaker_that_tries_or_pauses_says_so(state: str, says: str) -> None:
    (cause,) = diagnose([evidence(lambda _: {"breaker": breaker(state)})]).causes
    assert (cause.kind, says in cause.sentence) == ("breaker_open", True)


def failing(offset: int, key: str, attempts: int, error: str, behind: int) -> FailingRecord:
    return FailingRecord(
        topic=ORDERS.topic,
        partition=ORDERS.partition,
        offset=offset,
        key=key,
        attempts=attempts,
        error=error,
        behind=behind,
    )


POISON = failing(17, "anna", 12, "ValueError: no account", behind=400)


def test_under_block_the_record_is_named_that_holds_its_key_up_and_no_key_is_blamed() -> None:
    other = failing(900, "hugo", 3, "ValueError: x", behind=2)
    fields: dict[str, Any] = {"longest_line": 400, "hottest_key": "anna", "hovering_s": 40.0}
    held = partition(lag=None, open=500, failed=2, **fields)
    step = working(busy=0.01, per_s=0, partitions=[held], blocking=(other, POISON))
    (cause,) = diagnose([evidence(step, ordering="key", blocks=True)]).causes
    assert (cause.kind, cause.partition) == ("poison_record", ORDERS)
    for said in (
        "offset 17 of orders[0] blocks its key 'anna'",
        "12 calls so far, the last failure is ValueError: no account",
        "400 records of that key wait behind it",
        "--worker charge --record orders/0/17",
    ):
        assert said in cause.sentence
    assert cause.figures["waiting_for_lane"] == 400


def test_a_retry_that_gets_over_it_is_no_poison() -> None:
    def step(second: int) -> dict[str, Any]:
        blocking = (POISON,) if second else ()
        held = partition(lag=None, open=500, failed=1, longest_line=400)
        return working(busy=0.01, per_s=50, partitions=[held], blocking=blocking)(second)

    assert "poison_record" not in found(evidence(step, ordering="key", blocks=True))
    held = partition(lag=None, open=500, failed=1, longest_line=400)
    step_overtaken = working(busy=0.01, per_s=50, partitions=[held], blocking=(POISON,))
    overtakes = evidence(step_overtaken, ordering="key")
    assert "poison_record" not in found(overtakes)


def test_where_nobody_tells_which_records_fail_the_key_is_not_blamed_alone(golden: Golden) -> None:
    held = partition(lag=None, open=500, failed=1, longest_line=400)
    step = working(busy=0.01, per_s=0, partitions=[held])
    cause = the_cause(evidence(step, ordering="key", blocks=True), "hot_key")
    golden(cause.sentence)


@pytest.mark.parametrize("state", ["closed", "holding"])
def test_a_breaker_that_lets_calls_through_is_no_cause(state: str) -> None:
    assert found(evidence(lambda _: {"breaker": breaker(state)})) == []


def test_what_a_person_has_paused_waits_for_a_person() -> None:
    paused = partition(lag=70, open=7, halted=True, hovering_s=50.0)
    cause = the_cause(evidence(lambda _: {"partitions": (paused, partition(OTHERS))}), "halted")
    assert figures(cause, "partitions", "lag") == [1, 70]
    assert "orders[0]" in cause.sentence
    both = (paused, partition(OTHERS, halted=True))
    cause = the_cause(evidence(lambda _: {"partitions": both}), "halted")
    assert figures(cause, "partitions", "lag") == [2, 70]
    assert "orders[0]" not in cause.sentence
    pause = PauseSnapshot("ops", "bank", 90.0)
    cause = the_cause(evidence(lambda _: {"partitions": both, "pause": pause}), "halted")
    assert pause.words("90 s") in cause.sentence


def test_a_pause_without_lag_is_nobodys_trouble() -> None:
    assert found(evidence(lambda _: {"partitions": (partition(halted=True),)})) == []


STACK = """
  File "/app/shop.py", line 12, in charge
    lock.acquire()
  File "/usr/lib/python3.11/threading.py", line 331, in wait
    waiter.acquire()
"""


def hovering(seconds: float, **more: Any) -> WorkerEvidence:
    held = partition(lag=100, open=1, hovering_s=seconds, **more.pop("held", {}))
    return evidence(lambda _: {"partitions": (held,), "processed": 7, **more})


def test_a_lease_that_holds_a_partition_is_named() -> None:
    lease = evolve(call(31.0), lease_left_s=90.0)
    cause = the_cause(hovering(31.0, calls=(lease,)), "hovering")
    assert figures(cause, "offset", "running_s", "lease_left_s") == [17, 31.0, 90.0]
    assert "visibility_timeout" in cause.sentence


def test_a_start_cell_that_hovers_and_where_its_call_stands(golden: Golden) -> None:
    calls_of_it = (call(3.0, offset=18), call(31.0))
    cause = the_cause(hovering(31.0, calls=calls_of_it, stacks=[stack(STACK)]), "hovering")
    assert cause.partition == ORDERS
    assert figures(cause, "hovering_s", "offset", "running_s", "attempt") == [31.0, 17, 31.0, 2]
    golden(cause.sentence)
    assert cause.stack == STACK


def test_a_start_cell_that_waits_for_a_retry_or_for_nobody_knows_what() -> None:
    failed = the_cause(hovering(31.0, held={"failed": 3}), "hovering")
    assert (failed.figures["waiting_for_retry"], failed.figures["offset"]) == (3, None)
    elsewhere = the_cause(hovering(31.0, calls=(call(31.0, OTHERS),)), "hovering")
    assert (elsewhere.figures["waiting_for_retry"], elsewhere.figures["offset"]) == (0, None)


def test_what_takes_no_longer_than_calls_usually_do_does_not_hover() -> None:
    assert "hovering" not in found(hovering(4.0, calls=(call(4.0),)))
    slow = calls(10, 100.0)
    assert "hovering" not in found(hovering(40.0, calls=(call(40.0),), durations=slow))


def test_partitions_that_come_and_go_within_the_look() -> None:
    cause = the_cause(evidence(lambda second: {"rebalances": second // 3}), "rebalances")
    assert figures(cause, "changes", "within_s") == [3, 10.0]


def test_partitions_that_came_and_went_within_minutes_and_just_now() -> None:
    often = tuple(float(each) for each in range(250, 0, -50))
    cause = the_cause(evidence(lambda _: {"changes_s": often, "rebalances": 9}), "rebalances")
    assert figures(cause, "changes", "within_s") == [5, 250.0]


@pytest.mark.parametrize(
    "changes", [(200.0, 150.0, 120.0, 110.0, 100.0), (900.0, 800.0, 700.0, 600.0, 30.0), (50.0,)]
)
def test_a_rebalance_that_is_over_is_no_cause(changes: tuple[float, ...]) -> None:
    assert found(evidence(lambda _: {"changes_s": changes})) == []


def test_a_group_that_does_not_settle() -> None:
    group = [GroupLook(0.0, 3, is_stable=False), GroupLook(10.0, 4, is_stable=False)]
    cause = the_cause(evidence(group=group), "rebalances")
    assert figures(cause, "changes", "within_s", "members") == [0, 10.0, 4]


@pytest.mark.parametrize("phase", ["running", "joining", "silent"])
def test_a_worker_that_is_not_there(phase: str) -> None:
    seen = evidence(lambda _: {"is_ready": False, "phase": phase})
    assert the_cause(seen, "not_in_group").figures["phase"] == phase


# ---- nothing comes


def starved(**more: Any) -> WorkerEvidence:
    empty = partition(lag=None, open=2, unread=4998)
    return evidence(working(busy=0.05, per_s=50, partitions=[empty]), **more)


def test_slots_that_wait_for_records_that_lie_in_the_log() -> None:
    cause = the_cause(starved(), "fetch_bound")
    assert figures(cause, "busy_ratio", "held", "unread") == [0.05, 2, 4998]


def test_brokers_that_take_long_to_answer_come_before_what_follows_from_it() -> None:
    slow = starved(round_trips_s=[0.3, 0.01, 0.4])
    assert found(slow) == ["broker_slow", "fetch_bound"]
    assert "300 ms" in diagnose([slow]).causes[0].sentence


def test_acks_of_commits_that_take_long_count_as_well() -> None:
    step = working(busy=0.05, per_s=50, partitions=[partition(lag=None, open=50)])
    seen = evidence(lambda second: {**step(second), "commits": second, "commits_s": second * 0.9})
    assert "900 ms" in diagnose([seen]).causes[0].sentence


def test_slow_brokers_are_no_cause_where_all_slots_are_busy_anyway() -> None:
    seen = evidence(working(busy=1.0, per_s=50), round_trips_s=[0.9])
    assert found(seen) == ["handler_slow"]


# ---- what is not known, and who was not asked


def test_lag_that_no_rule_explains_is_reported_as_such() -> None:
    cause = the_cause(evidence(working(busy=0.6, per_s=20)), "unknown")
    assert figures(cause, "lag") == [5000]


def group(*lags: int, members: int | None = 2) -> list[GroupLook]:
    return [
        GroupLook(10.0 * number, members, lags={ORDERS: lag, OTHERS: 0})
        for number, lag in enumerate(lags)
    ]


@pytest.mark.parametrize(
    ("looks", "kind"),
    [
        *((group(10, 10), "unknown"), (group(10, 20), "unknown")),
        (group(10, 10, members=0), "nobody_reads"),
    ],
)
def test_the_cluster_alone_tells_of_lag_that_gets_no_less(
    looks: list[GroupLook], kind: str
) -> None:
    (cause,) = diagnose([], groups=[("charge", looks)]).causes
    assert cause.kind == kind


@pytest.mark.parametrize(
    "looks", [group(0, 0), group(20, 10), group(0, 10), group(0, 0, members=0)]
)
def test_the_cluster_alone_tells_that_a_group_goes_on(
    looks: list[GroupLook], golden: Golden
) -> None:
    diagnosis = diagnose([], groups=[("charge", looks)])
    assert diagnosis.causes == ()
    golden(diagnosis.well)


def test_who_was_asked_and_did_not_answer_need_not_be_named_again(golden: Golden) -> None:
    groups = [("charge", group(10, 10))]
    (cause,) = diagnose([], groups=groups).causes
    golden(cause.sentence)
    (cause,) = diagnose([], groups=groups, were_asked=True).causes
    golden(cause.sentence)


def test_partitions_of_members_that_were_not_asked_are_looked_at_too() -> None:
    causes = diagnose([evidence()], others=[("charge", group(10, 10))]).causes
    assert [(cause.kind, cause.partition) for cause in causes] == [("unknown", ORDERS)]


def test_one_of_several_processes_is_distinguished(golden: Golden) -> None:
    diagnosis = diagnose([evidence(lambda _: {"breaker": breaker("open")}, where="process 2")])
    (cause,) = diagnosis.as_json()["causes"]
    assert (cause["worker"], cause["process"]) == ("charge", "process 2")
    golden(next(diagnosis.as_text()))


def test_the_fields_of_json_are_stable() -> None:
    seen = hovering(31.0, calls=(call(31.0),), stacks=[stack(STACK)])
    plain = json.loads(json.dumps(diagnose([seen], notes=["a note"]).as_json()))
    assert plain.keys() == {"ok", "causes", "well", "notes"}
    (cause,) = plain["causes"]
    fields = {"cause", "worker", "process", "partition", "sentence", "figures", "stack"}
    assert cause.keys() == fields
    assert (cause["worker"], cause["process"]) == ("charge", None)
    assert (plain["ok"], cause["cause"], cause["partition"]) == (False, "hovering", "orders[0]")
    assert plain["notes"] == ["a note"]


@pytest.mark.parametrize("ends_itself", [True, False])
def test_doctor_asks_to_accept_only_what_does_not_end_by_itself(*, ends_itself: bool) -> None:
    finding = RuleFinding("refused", "3 records wait", ends_itself=ends_itself)
    seen = evidence(lambda second: {**working(busy=0.0, per_s=0)(second), "findings": (finding,)})
    (cause,) = diagnose([seen]).causes
    assert cause.kind == "refused"
    assert ("window-consumer resume" in cause.sentence) is not ends_itself


def test_what_holds_all_calls_explains_a_window_that_stands() -> None:
    finding = RuleFinding("database_unavailable", "it is away", holds_all=True, ends_itself=True)
    assert [each.kind for each in diagnose([hovering(31.0)]).causes] == ["hovering"]
    (cause,) = diagnose([hovering(31.0, findings=(finding,))]).causes
    assert cause.kind == finding.kind
