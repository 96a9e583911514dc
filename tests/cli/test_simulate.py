"""``window-consumer simulate``: what it runs, what it finds, what it says."""

from __future__ import annotations

import json
import re
import signal
from collections import Counter
from pathlib import Path
from random import Random

import pytest

from tests.commands import Commands
from tests.golden_texts import Golden
from tests.simulation import mutants
from tests.testing.shops import Shop, config
from window_consumer import App, Record, header
from window_consumer.simulator.cli import SimulatedWorker, run
from window_consumer.simulator.schedule_builder import DEATHS
from window_consumer.simulator.system_under_test import SystemUnderTest
from window_consumer.simulator.worker_profile import Likeness

SHOP = """
from window_consumer import App, Fatal, Record

app = App("shop")


@app.lifespan
def resources():
    print("opened")
    yield "the pool"
    print("closed")


@app.handler("orders", group="shop", ordering="key")
def charge(order: Record) -> None:
    if order.value is not None and order.json()["amount"] == 0:
        print("called:", order.state)
        raise Fatal("nothing to charge")


@app.handler("bills", group="post")
def post(bill: Record) -> None: ...
"""

BARE = """
from window_consumer import App

app = App("shop")
app.handler(name="charge")(lambda order: None)
"""

WORKERS = """
workers:
  charge: {retry: {on_failure: overtake}}
  post: {}
"""


@pytest.fixture
def shop(commands: Commands) -> Commands:
    commands.application(SHOP)
    commands.configure(WORKERS)
    return commands


def kept(out: str) -> dict[str, int]:
    """Return how many schedules each worker had that kept all promises."""
    sums = re.findall(r"^(\w+): (\d+) schedules?, every .* kept\b", out, re.MULTILINE)
    return {worker: int(count) for worker, count in sums}


def test_every_worker_is_simulated_and_summed_up(shop: Commands) -> None:
    ended = shop.run("simulate", "shop:app", "--seeds", "20")
    assert ended.code == 0, ended.said
    assert kept(ended.out) == {"charge": 20, "post": 20}
    assert len(ended.out.splitlines()) == 2


def test_a_seed_is_reported_step_by_step_and_is_the_same_each_time(shop: Commands) -> None:
    command = ("simulate", "shop:app", "--only", "charge", "--seed", "7")
    first, second = shop.run(*command), shop.run(*command)
    assert "joins" in first.out
    assert first.out.splitlines()[:-1] == second.out.splitlines()[:-1]
    assert kept(first.out) == {"charge": 1}


def test_handlers_are_called_with_the_values_of_a_file(shop: Commands) -> None:
    (shop.directory / "values").write_text('{"amount": 1}\n\n{"amount": 0}\n')
    ended = shop.run(
        *("simulate", "shop:app", "--only", "charge", "--seeds", "5"),
        *("--call-handlers", "--values", "values"),
    )
    assert ended.code == 0, ended.said
    lines = ended.out.splitlines()
    assert (lines[0], lines[-1]) == ("opened", "closed")
    assert "called: the pool" in lines


def test_an_interrupt_tells_what_was_found_so_far(shop: Commands) -> None:
    (shop.directory / "values.txt").write_text('{"amount": 0}\n')
    options = ["--seeds", "1000000", "--call-handlers", "--values", "values.txt"]
    running = shop.start("simulate", "shop:app", *options)
    running.wait_for("called:")
    running.signal(signal.SIGINT)
    ended = running.wait()
    assert ended.code == 130
    assert re.search(r"^charge: \d+ of 1000000 .* kept\b", ended.out, re.MULTILINE)


def test_without_being_asked_for_no_handler_is_called(shop: Commands) -> None:
    ended = shop.run("simulate", "shop:app", "--seeds", "5")
    assert "opened" not in ended.said


@pytest.mark.parametrize(
    ("arguments", "reported"),
    [
        (["--seeds", "many"], "neither a number nor a range such as 200..300"),
        (["--seeds", "0"], "has no seed"),
        (["--seeds", "9..3"], "has no seed"),
        (["--seed", "1"], "choose one with --only (charge, post)"),
        (["--values", "values"], "add --call-handlers"),
        (["--call-handlers", "--values", "nowhere"], "--values nowhere: cannot be read"),
        (["--call-handlers", "--values", "empty"], "--values empty: has no value"),
        (["--only", "chrage"], "charge, post"),
    ],
)
def test_wrong_arguments_are_reported(shop: Commands, arguments: list[str], reported: str) -> None:
    (shop.directory / "empty").write_text("\n")
    ended = shop.run("simulate", "shop:app", *arguments)
    assert ended.code == 2, ended.said
    assert reported in ended.err


def test_a_broken_promise_is_reported_with_the_command_that_replays_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    shop = Shop()
    file = tmp_path / "workers.yaml"
    file.write_text(json.dumps({"workers": {"charge": {}}}))
    plan = shop.app.plan(file)
    replay = "window-consumer simulate shop:app"
    broken = SystemUnderTest(make_engine=mutants.CommitsPastAnOpenCell)
    task = SimulatedWorker(range(30), False, None, (), False, replay, broken)
    assert run(shop.app, plan, task) == 1
    reported = capsys.readouterr().out
    found = re.search(r"charge: seed (\d+): ", reported)
    assert found is not None, reported
    assert f"{replay} --only charge --seed {found[1]}" in reported
    assert re.search(r"^charge: 30 schedules, [1-9]\d* .*\bbroken\b", reported, re.MULTILINE)
    assert not kept(reported)
    seed = int(found[1])
    again = SimulatedWorker(range(seed, seed + 1), True, None, (), False, replay, broken)
    assert run(shop.app, plan, again) == 1
    assert "commits orders" in capsys.readouterr().out
    assert (
        run(shop.app, plan, SimulatedWorker(range(seed, seed + 1), False, None, (), False, "")) == 0
    )


def test_schedules_have_the_rules_of_the_worker_and_now_and_then_small_windows(
    tmp_path: Path,
) -> None:
    shop = Shop()
    file = tmp_path / "workers.yaml"
    retry = {"attempts": 7, "backoff": "1s..1m", "on_failure": "overtake", "when_spent": "drop"}
    file.write_text(json.dumps(config(charge={"ordering": "key", "retry": retry})))
    file.write_text(file.read_text().replace("${NOBODY_SETS_THIS}", "nowhere"))
    (worker,) = shop.app.plan(file).workers
    likeness = Likeness(worker.engine, 10.0, 20.0)
    seen: Counter[int] = Counter()
    for seed in range(40):
        plan = likeness.draw(Random(seed))
        assert plan.engine.ordering == "key"
        assert plan.engine.retry == worker.engine.retry
        assert (plan.loop.revoke_timeout_s, plan.loop.stop_timeout_s) == (10.0, 20.0)
        assert 60.0 in plan.waits_s
        assert plan.deaths is None
        seen[plan.engine.cell_records == 500] += 1
    assert min(seen[True], seen[False]) > 5


def test_handlers_that_always_fail_break_no_promise(capsys: pytest.CaptureFixture[str]) -> None:
    shop = Shop()
    shop.down = True
    with shop.run({"ordering": "key", "retry": {"on_failure": "block"}}) as wc_app:
        task = SimulatedWorker(range(10), False, None, (b"{}",), True, "")
        assert run(shop.app, wc_app.plan, task) == 0
    assert kept(capsys.readouterr().out) == {"charge": 10}
    assert shop.seen


@pytest.mark.parametrize("ends", ["4..200", "20..200"])
def test_a_worker_that_finds_its_concurrency_is_simulated(
    capsys: pytest.CaptureFixture[str], ends: str
) -> None:
    shop = Shop()
    with shop.run({"concurrency": {"auto": ends}}) as wc_app:
        plan = wc_app.plan
    task = SimulatedWorker(range(20), tell=False, steps=40, values=(), calling=False, replay="")
    assert run(shop.app, plan, task) == 0
    assert kept(capsys.readouterr().out) == {"charge": 20}


@pytest.mark.parametrize(
    ("delivery", "said"),
    [
        ("at_most_once", "15 schedules, every promise kept"),
        ("exactly_once", "15 schedules, every promise kept"),
        ("broadcast", "not simulated"),
    ],
)
def test_each_delivery_is_simulated_with_what_it_promises(
    shop: Commands, delivery: str, said: str
) -> None:
    group = "" if delivery == "broadcast" else "group: shop, "
    shop.application(BARE)
    shop.configure(f"workers: {{charge: {{topics: [orders], {group}delivery: {delivery}}}}}")
    ended = shop.run("simulate", "shop:app", "--seeds", "15")
    assert (ended.code, said in ended.out) == (0, True)


def test_rules_that_wait_for_long_are_waited_for(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    shop = Shop()
    file = tmp_path / "workers.yaml"
    worker = {
        "breaker": {"cool_down": "1h", "min_calls": 3, "failures": "10%"},
        "retry": {"attempts": 2, "levels": ["10s", "2h"]},
    }
    file.write_text(json.dumps({"workers": {"charge": worker}}))
    assert (
        run(shop.app, shop.app.plan(file), SimulatedWorker(range(40), False, None, (), False, ""))
        == 0
    )
    assert kept(capsys.readouterr().out) == {"charge": 40}


def test_children_die_where_slots_are_processes(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], golden: Golden
) -> None:
    app = App("shop")

    @app.batch_handler("clicks", group="shop", pool="processes", max_records=6)
    def store(_records: list[Record]) -> None: ...

    file = tmp_path / "workers.yaml"
    file.write_text(json.dumps({"workers": {"store": {"retry": {"when_spent": "stop"}}}}))
    (worker,) = app.plan(file).workers
    drawn = Likeness(worker.engine, 10.0, 20.0, has_children=True).draw
    plans = [drawn(Random(seed)) for seed in range(40)]
    assert {plan.deaths for plan in plans} == set(DEATHS)
    assert not any(plan.handlers.deadly for plan in plans)
    assert run(app, app.plan(file), SimulatedWorker(range(10), True, None, (), False, "")) == 0
    reported = capsys.readouterr().out.splitlines()
    golden(
        "\n".join(
            sorted({re.sub(r"[0-9.]+", "N", each).strip() for each in reported if "slot" in each})
        )
    )


def test_routes_and_times_to_live_are_honoured_where_handlers_are_called(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    app = App("shop")
    seen: set[str] = set()

    @app.handler(when=lambda order: bool(order.headers))
    def traced(_order: Record) -> None:
        seen.add("traced")

    @app.handler(when=header("nobody") == "has this")
    def other(_order: Record) -> None:
        seen.add("other")

    file = tmp_path / "workers.yaml"
    worker = {
        "topics": ["orders"],
        "group": "shop",
        "handler": ["traced", "other"],
        "ttl": "5s",
        "on_expired": "drop",
        "ordering": "key",
        "retry": {"on_failure": "overtake"},
    }
    file.write_text(json.dumps({"workers": {"orders": worker}}))
    task = SimulatedWorker(range(30), False, None, (b"{}",), True, "")
    assert run(app, app.plan(file), task) == 0
    assert kept(capsys.readouterr().out) == {"orders": 30}
    assert seen == {"traced"}


def test_batch_handlers_are_simulated_and_called_with_lists(commands: Commands) -> None:
    commands.application(
        "from window_consumer import App, PartialFailure\n"
        "app = App('shop')\n"
        "@app.batch_handler('clicks', group='shop', max_records=5, min_records=2)\n"
        "def store(records):\n"
        "    print('called:', type(records).__name__)\n"
        "    raise PartialFailure(failed=records[1:])\n"
    )
    commands.configure("kafka: {bootstrap.servers: nowhere}\nworkers: {store: {}}\n")
    ended = commands.run("simulate", "shop:app", "--seeds", "5", "--call-handlers")
    assert ended.code == 0, ended.said
    assert "called: list" in ended.out
    assert kept(ended.out) == {"store": 5}
