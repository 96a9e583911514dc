"""``demo``: it shows the worker at work, and its checker can be trusted."""

from __future__ import annotations

import io
from typing import Any

import attrs
import pytest
from rich.console import Console

from tests.commands import Commands
from window_consumer.demo.checker import DemoRun, judge
from window_consumer.demo.cli import conclude
from window_consumer.demo.shop import ORDERS, ShopCall, orders

KEYS = {
    "produced",
    "processed",
    "retried",
    "dead_lettered",
    "lost",
    "duplicates",
    "order_violations",
    "committed_equals_end",
    "records_per_s",
    "seconds",
}


def test_the_report_as_json(commands: Commands) -> None:
    ended = commands.run("demo", "--json", "--no-ui")
    report = ended.json
    assert ended.code == 0
    assert ended.out.count("\n") == 1
    assert report.keys() == KEYS
    assert report["produced"] == 20_000
    assert (report["lost"], report["duplicates"], report["order_violations"]) == (0, 0, 0)
    assert report["committed_equals_end"] is True
    assert report["processed"] + report["dead_lettered"] == 20_000
    assert report["retried"] > 100
    assert report["dead_lettered"] == 8
    assert 5 <= report["seconds"] <= 30


def test_the_demo_has_orders_that_fail_and_several_of_each_customer() -> None:
    made = list(orders(ORDERS))
    assert len({order.number for order in made}) == ORDERS == 20_000
    assert len({order.key for order in made}) < ORDERS / 10


# ---- the checker, fed with made-up histories: three orders of one customer in one partition


def call(
    offset: int, *, attempt: int = 1, succeeded: bool = True, at: float | None = None
) -> ShopCall:
    started = float(offset) if at is None else at
    return ShopCall(
        order=offset,
        key=b"customer",
        partition=0,
        offset=offset,
        attempt=attempt,
        started=started,
        ended=started + 0.5,
        succeeded=succeeded,
    )


GOOD = DemoRun(
    produced={0: (0, 0), 1: (0, 1), 2: (0, 2)},
    calls=[call(0), call(1, succeeded=False), call(1, attempt=2, at=1.5), call(2, succeeded=False)],
    dead_letters=[(0, 2)],
    committed={0: 3},
    ends={0: 3},
    seconds=2.0,
)


def test_a_good_history_is_good() -> None:
    report = judge(GOOD)
    assert report.good
    assert (report.produced, report.processed, report.retried) == (3, 2, 1)
    assert (report.dead_lettered, report.lost, report.duplicates) == (1, 0, 0)
    assert report.records_per_s == pytest.approx(1.5)


def test_a_record_without_a_successful_call_and_without_a_copy_is_lost() -> None:
    assert judge(attrs.evolve(GOOD, dead_letters=[])).lost == 1
    assert judge(attrs.evolve(GOOD, calls=GOOD.calls[:2])).lost == 1
    assert not judge(attrs.evolve(GOOD, dead_letters=[])).good


def test_a_record_that_was_handled_or_copied_twice_is_a_duplicate() -> None:
    assert judge(attrs.evolve(GOOD, dead_letters=[(0, 2), (0, 2)])).duplicates == 1
    assert judge(attrs.evolve(GOOD, dead_letters=[(0, 2), (0, 1)])).duplicates == 1
    assert judge(attrs.evolve(GOOD, calls=[*GOOD.calls, call(0, at=9)])).duplicates == 1


@pytest.mark.parametrize(
    "calls",
    [
        pytest.param([call(1, at=0), call(0, at=1)], id="a later record first"),
        pytest.param([call(0), call(1, at=0.3)], id="two at once"),
        pytest.param(
            [call(0, succeeded=False), call(1), call(0, attempt=2, at=2)],
            id="another record between two attempts",
        ),
        pytest.param([call(0), call(0, at=3)], id="a record again from the beginning"),
    ],
)
def test_calls_out_of_order_are_violations(calls: list[ShopCall]) -> None:
    report = judge(attrs.evolve(GOOD, calls=calls))
    assert report.order_violations > 0
    assert not report.good


def test_other_keys_and_other_partitions_may_overlap() -> None:
    other: dict[str, Any] = {"started": 0.2, "ended": 0.4}
    calls = [
        call(0),
        attrs.evolve(call(1), key=b"another", **other),
        attrs.evolve(call(2), partition=1, **other),
    ]
    assert judge(attrs.evolve(GOOD, calls=calls)).order_violations == 0


def test_a_commit_that_is_not_the_end_is_seen() -> None:
    report = judge(attrs.evolve(GOOD, committed={0: 2}))
    assert not report.committed_equals_end
    assert not report.good


@pytest.mark.parametrize("as_json", [True, False])
@pytest.mark.parametrize(
    ("evidence", "code"),
    [
        pytest.param(GOOD, 0, id="good"),
        pytest.param(attrs.evolve(GOOD, dead_letters=[]), 1, id="lost"),
        pytest.param(attrs.evolve(GOOD, calls=[*GOOD.calls, call(0, at=9)]), 1, id="order"),
        pytest.param(attrs.evolve(GOOD, committed={0: 2}), 1, id="not committed"),
    ],
)
def test_the_exit_code_says_whether_all_was_well(
    evidence: DemoRun, code: int, *, as_json: bool
) -> None:
    console = Console(file=io.StringIO())
    assert conclude(judge(evidence), console, as_json=as_json) == code
