"""What ``check`` works out of a configuration, and which lines it names."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from tests.applications import SHOP
from tests.commands import Commands
from tests.golden_texts import Golden
from window_consumer import App
from window_consumer.app.limits.process import BASE_BYTES
from window_consumer.cli.check import check
from window_consumer.engine.commits.delivery_guarantee import DeliveryMode

MIB = 2**20
BROKERS = "kafka: {bootstrap.servers: broker-1}"


@pytest.fixture
def shop(commands: Commands) -> Commands:
    commands.application(SHOP)
    commands.configure(f"{BROKERS}\nworkers:\n  charge: {{group: shop}}\n")
    return commands


def bounds(shop: Commands, *overrides: str) -> Any:
    settings = [part for each in overrides for part in ("--set", f"workers.charge.{each}")]
    ended = shop.run("check", "shop:app", "--json", *settings)
    assert ended.code == 0, ended.err
    return ended.json["workers"]["charge"]


def test_bytes_are_bounded_by_memory_and_records_by_the_window(shop: Commands) -> None:
    found = bounds(shop, "memory=64MiB", "window.cells=4", "window.cell_records=100")
    assert found["max_bytes"] == 64 * MIB
    assert found["window_records"] == 400
    assert found["buffer_records"] > 0
    assert found["resident_bytes"] == pytest.approx(1.5 * 64 * MIB + 600 * 400)


def test_child_processes_have_memory_of_their_own(shop: Commands) -> None:
    assert bounds(shop)["children_bytes"] == 0
    found = bounds(shop, "pool=processes", "concurrency=256", "stall.max_abandoned=2")
    assert (found["children_bytes"], found["max_abandoned"]) == (256 * 40 * MIB, 0)
    (without,) = (each for each in found["warnings"] if each.startswith("stall.max_abandoned "))
    assert "pool: processes" in without
    (warning,) = (each for each in found["warnings"] if each.startswith("concurrency"))
    assert warning.startswith("concurrency 256 ")
    assert "pool: processes" in warning
    settings = ["pool=processes", "concurrency={auto: 1..256}"]
    ended = shop.run("check", "shop:app", *(f"--set=workers.charge.{each}" for each in settings))
    assert re.search(r"\b256 child processes\b.*\b10GiB\b", ended.out)
    assert "warning: concurrency" not in ended.out


def test_copies_of_the_process_need_as_much_as_there_are_and_their_supervisor(
    shop: Commands,
) -> None:
    one = shop.run("check", "shop:app", "--json").json["process"]
    ended = shop.run("check", "shop:app", "--json", "--processes", "4")
    four = ended.json["process"]
    assert four == one | {"processes": 4, "resident_bytes": 4 * one["resident_bytes"] + BASE_BYTES}
    assert "all 4 processes\n" in shop.run("check", "shop:app", "--processes", "4").out


@pytest.mark.parametrize(
    ("settings", "ends"),
    [
        ([], [5, 9]),
        (["retry.crash_attempts=1"], [3, 7]),
        (["window.cells=2", "window.cell_records=32"], [5, 5]),
        (["concurrency=500"], [5, 7]),
    ],
)
def test_how_often_a_record_can_kill_the_process(
    shop: Commands, settings: list[str], ends: list[int]
) -> None:
    assert bounds(shop, *settings)["crash_ends"] == ends


def test_check_says_how_often_a_record_can_kill_the_process(shop: Commands, golden: Golden) -> None:
    text = shop.run("check", "shop:app").out
    (line,) = (each for each in text.splitlines() if "kills" in each)
    golden(line)


def test_how_many_calls_may_be_left_behind(shop: Commands) -> None:
    found = bounds(shop, "concurrency=40")
    assert (found["concurrency"], found["max_abandoned"]) == (40, 10)
    assert bounds(shop, "concurrency=2")["max_abandoned"] == 1
    assert bounds(shop, "stall.max_abandoned=3")["max_abandoned"] == 3
    reported = bounds(shop, "stall.action=report", "stall.max_abandoned=3")
    assert reported["max_abandoned"] == 0
    assert any("stall.max_abandoned " in each for each in reported["warnings"])
    blocking = bounds(shop, "ordering=key", "retry.on_failure=block")
    assert blocking["max_abandoned"] == 0


def test_all_records_of_the_batches_that_ran_run_again_after_a_crash(commands: Commands) -> None:
    commands.application(
        """
from window_consumer import App, Record

app = App("shop")


@app.batch_handler("clicks", group="shop", max_records=200, concurrency=3)
def store(clicks: list[Record]) -> None: ...
"""
    )
    commands.configure(f"{BROKERS}\nworkers:\n  store: {{}}\n")
    ended = commands.run("check", "shop:app", "--json")
    assert ended.json["workers"]["store"]["rerun_running"] == 600


def test_what_runs_again_after_a_crash(shop: Commands) -> None:
    found = bounds(shop, "commit_interval=2s", "concurrency=9")
    assert found["rerun_running"] == 9
    assert found["rerun_finished_s"] == pytest.approx(2 + 1)
    assert found["rerun_records_without_metadata"] == 16_000
    assert found["metadata_bytes"] <= 4095
    wide = bounds(shop, "window.cells=1024")
    assert wide["metadata_fits"] is False
    assert any("commit metadata" in warning for warning in wide["warnings"])


def test_how_long_a_rebalance_and_a_stop_take(shop: Commands) -> None:
    classic = ("kafka.group.protocol=classic", "kafka.session.timeout.ms=9000")
    found = bounds(shop, *classic, "revoke_timeout=4s", "stop_timeout=3s")
    assert found["crash_takeover_s"] == pytest.approx(9 + 3 + 4)
    assert found["planned_takeover_s"] == pytest.approx(9 + 3 + 4)
    assert found["stop_s"] == pytest.approx(3 + 5)
    assert bounds(shop, classic[0], "kafka.heartbeat.interval.ms=1000", "revoke_timeout=4s")[
        "crash_takeover_s"
    ] == pytest.approx(45 + 1 + 4)
    assert bounds(shop)["crash_takeover_s"] == pytest.approx(45 + 5 + 10)


def test_what_a_takeover_is_made_of_is_reported(shop: Commands) -> None:
    said = shop.run("check", "shop:app").out
    parts = (r"\b1m: session 45s \(.*\bheartbeat 5s", r"10s \(revoke_timeout\)")
    assert re.search(r"\b.*".join(parts), said)


def test_what_becomes_of_a_long_retry_later_is_reported(shop: Commands) -> None:
    def said(*more: str) -> tuple[float, str]:
        settings = ("retry.backoff=200ms..5s", *more)
        given = [f"--set=workers.charge.{each}" for each in settings]
        text = shop.run("check", "shop:app", *given).out
        (line,) = (each for each in text.splitlines() if "RetryLater" in each)
        return bounds(shop, *settings)["retry_later_longest_s"], line.strip()

    longest_s, line = said()
    assert longest_s == 5
    assert re.match(r"RetryLater .*\b5s\b.* backoff\b.*\bretry\.levels$", line)
    longest_s, line = said("retry.levels=[10s, 10m]")
    assert longest_s == 600
    assert re.search(r" level .*\b10m\b", line)
    longest_s, line = said("retry.on_failure=block", "ordering=key")
    assert longest_s == 5
    assert re.match(r"RetryLater .*\b5s\b.* backoff$", line)
    _, line = said("retry.attempts=1")
    assert not line.startswith("RetryLater")


def test_the_whole_schedule_of_retries(shop: Commands) -> None:
    found = bounds(shop, "retry.attempts=5", "retry.backoff=100ms..500ms")
    assert found["calls"] == 5
    waits = [(wait["call"], wait["longest_s"]) for wait in found["retry_waits"]]
    assert waits == [(2, 0.1), (3, 0.2), (4, 0.4), (5, 0.5)]
    shortest, longest = found["retry_elapsed_s"]
    assert longest == pytest.approx(0.1 + 0.2 + 0.4 + 0.5)
    assert shortest == pytest.approx(0.75 * longest)
    once = bounds(shop, "retry.attempts=1")
    assert (once["calls"], once["retry_waits"]) == (1, [])


LEVELS = (
    "retry.attempts=3",
    "retry.backoff=1s..1s",
    "retry.levels=[10s, 1m, 2h]",
    "retry.attempts_per_level=2",
)


def test_the_whole_schedule_of_retries_with_levels(shop: Commands) -> None:
    found = bounds(shop, *LEVELS)
    assert found["calls"] == 3 + 3 * 2
    assert [(wait["call"], wait["level"], wait["longest_s"]) for wait in found["retry_waits"]] == [
        *((2, None, 1), (3, None, 1), (4, "10s", 11), (5, "10s", 1)),
        *((6, "1m", 61), (7, "1m", 1), (8, "2h", 7201), (9, "2h", 1)),
    ]
    shortest, longest = found["retry_elapsed_s"]
    assert shortest == pytest.approx(10 + 60 + 7200 + 5 * 0.75)
    assert longest == pytest.approx(10 + 60 + 7200 + 3 + 5)
    assert found["when_spent"] == "dead_letter"


def test_the_schedule_in_words_names_each_level(shop: Commands) -> None:
    settings = [part for each in LEVELS for part in ("--set", f"workers.charge.{each}")]
    lines = [line.strip() for line in shop.run("check", "shop:app", *settings).out.splitlines()]
    whole = re.compile(r".*\b9 times\b.*\b2h1m to 2h1m\b.*\bdead letters$")
    (first,) = (number for number, line in enumerate(lines) if whole.match(line))
    parts = [
        r".* 750ms\.\.1s, 750ms\.\.1s",
        r".* level 10s, .*\b1s\b.* 750ms\.\.1s",
        r".* level 1m, .*\b1s\b.* 750ms\.\.1s",
        r".* level 2h, .*\b1s\b.* 750ms\.\.1s",
    ]
    shown = lines[first + 1 : first + 5]
    assert all(re.fullmatch(part, line) for part, line in zip(parts, shown, strict=True))


def test_many_waits_of_one_place_are_not_all_listed(shop: Commands) -> None:
    many = (
        "--set",
        "workers.charge.retry.attempts=40",
        "--set",
        "workers.charge.retry.backoff=1s..1s",
    )
    out = shop.run("check", "shop:app", *many).out
    assert f" {'750ms..1s, ' * 5}33 more, 750ms..1s\n" in out


def test_records_that_are_not_due_are_bounded(shop: Commands, golden: Golden) -> None:
    found = bounds(shop, "retry.levels=[10s]", "window.cell_records=100")
    most = found["waiting_records"]
    assert most == 4 * 100 + found["buffer_records"] // 3
    assert bounds(shop)["waiting_records"] == 0
    out = shop.run(
        *("check", "shop:app", "--set", "workers.charge.retry.levels=[10s]"),
        *("--set", "workers.charge.window.cell_records=100"),
    ).out
    golden("\n".join(each for each in out.splitlines() if f" {most} " in each))


def test_a_blocking_lane_has_no_end_of_retries(shop: Commands) -> None:
    found = bounds(shop, "ordering=key", "retry.on_failure=block")
    assert (found["calls"], found["retry_elapsed_s"]) == (None, None)
    ended = shop.run(
        *("check", "shop:app", "--set", "workers.charge.ordering=key"),
        *("--set", "workers.charge.retry.on_failure=block"),
    )
    (line,) = (each for each in ended.out.splitlines() if "a failing record" in each)
    assert " times" not in line
    assert "dead letters" not in line
    assert " lane " in line


@pytest.mark.parametrize(
    ("overrides", "named"),
    [
        (["ordering=partition", "retry.on_failure=overtake"], "ordering: partition"),
        (
            ["ordering=key", "retry.on_failure=block", "retry.attempts=7"],
            ("retry.attempts ", "on_failure: block"),
        ),
        (
            ["retry.when_spent=stop", "retry.on_oversize=reference"],
            ("retry.on_oversize ", "when_spent: stop"),
        ),
        (["retry.attempts_per_level=2"], ("attempts_per_level ", "levels")),
        (["retry.levels=[1s, 1m]", "retry.backoff=1s..5s"], ("1s ", "backoff (5s)")),
        (
            ["retry.levels=[1m]", "retry.fatal=[ValueError, Exception]"],
            ("attempts and levels ", "fatal lists Exception"),
        ),
        (["retry.fatal=[Exception]"], ("attempts ", "fatal lists Exception")),
        (["retry.levels=[10s, 1m, 1h]", "ttl=30s"], ("ttl 30s ", "level 1m: ")),
        (["retry.levels=[1m, 1h]", "ttl=30s"], ("ttl 30s ", "level 1m: ")),
        (["window.cells=2", "window.cell_records=3"], ("concurrency 16 ", " 6 records")),
    ],
)
def test_settings_that_contradict_each_other_are_warned_of(
    shop: Commands, overrides: list[str], named: Sequence[str]
) -> None:
    warnings = bounds(shop, *overrides)["warnings"]
    assert any(all(name in each for name in named) for each in warnings), warnings


@pytest.mark.parametrize(
    "overrides",
    [
        [],
        ["retry.levels=[5s, 1m]", "retry.attempts_per_level=2"],
        ["retry.fatal=[Exception]", "retry.retryable=[OSError]"],
        ["retry.levels=[5s, 55s]", "ttl=1m"],
        ["retry.levels=[5s, 1m]", "ttl={header: ttl, unit: s, format: text}"],
        ["retry.levels=[5s]", "retry.when_spent=stop", "retry.on_oversize=reference"],
        ["retry.levels=[1s]", "retry.backoff=1s..5s", "retry.attempts=1"],
    ],
)
def test_what_fits_together_has_nothing_to_be_warned_of(
    shop: Commands, overrides: list[str]
) -> None:
    assert bounds(shop, *overrides)["warnings"] == []


@pytest.mark.parametrize(
    ("text", "place"),
    [
        ("kafka:\n  consumer:\n    fetch.min.bytes: lots\nworkers:\n  charge: {group: g}", 3),
        ("kafka:\n  producer:\n    linger.ms: -7\nworkers:\n  charge: {group: g}", 3),
        ("kafka:\n  admin:\n    no.such.key: 1\nworkers:\n  charge: {group: g}", 3),
        ("workers:\n  charge:\n    group: g\n    kafka:\n      check.crcs: perhaps", 5),
        ("kafka:\n  linger.ms: -7\n  acks: all\nworkers:\n  charge: {group: g}", 2),
        ("kafka: {security.protocol: pigeon}\nworkers:\n  charge: {group: g}", 1),
    ],
)
def test_a_property_that_librdkafka_refuses_is_named_with_its_line_wherever_it_stands(
    shop: Commands, text: str, place: int
) -> None:
    shop.configure(text)
    ended = shop.run("check", "shop:app")
    assert (ended.code, ended.out) == (2, "")
    assert ended.err.startswith(f"error: workers.yaml:{place}: kafka: ")
    assert len(ended.err.splitlines()) == 1


def test_a_property_with_two_names_is_refused_by_the_one_that_was_written(shop: Commands) -> None:
    ended = shop.run("check", "shop:app", "--set", "workers.charge.kafka.producer.linger.ms=-7")
    assert ended.code == 2
    assert ended.err.startswith("error: --set workers.charge.kafka.producer.linger.ms")
    assert "kafka: linger.ms: " in ended.err


def test_a_mistake_is_all_that_whoever_reads_json_gets(shop: Commands) -> None:
    ended = shop.run("check", "shop:app", "--json", "--set", "workers.charge.concurrency=0")
    assert ended.code == 2
    assert json.loads(ended.out)["code"] == "WC102"
    assert "--set workers.charge.concurrency" in ended.err


def test_how_often_a_record_can_kill_child_processes_and_what_runs_again_of_batches(
    tmp_path: Path, golden: Golden
) -> None:
    app = App("shop")
    keys: Any = {"group": "shop", "pool": "processes", "concurrency": 2}
    app.handler("orders", name="charge", **keys)(lambda _record: None)
    app.batch_handler("clicks", name="store", max_records=100, **keys)(lambda _records: None)
    app.handler("bills", name="post", group="shop-post")(lambda _record: None)
    file = tmp_path / "workers.yaml"
    file.write_text("workers: {charge: {}, store: {}, post: {}}\n")
    plan = app.plan(file)
    report = check(app, plan, connect=False, start_timeout=None)
    found = {each.worker: each for each in report.workers}
    assert {name: each.child_deaths for name, each in found.items()} == {
        "charge": (3, 3),
        "store": (3, 10),
        "post": None,
    }
    assert (found["charge"].rerun_running, found["store"].rerun_running) == (2, 200)
    text = report.as_text()
    golden("\n".join(line for line in text.splitlines() if "child process" in line))


@pytest.mark.parametrize("delivery", DeliveryMode)
def test_what_a_crash_does_depends_on_the_delivery(
    tmp_path: Path, delivery: DeliveryMode, golden: Golden
) -> None:
    app = App("shop")
    group: Any = {} if delivery is DeliveryMode.BROADCAST else {"group": "shop"}
    app.handler("orders", name="charge", delivery=delivery.value, **group)(lambda _record: None)
    file = tmp_path / "workers.yaml"
    file.write_text("workers: {charge: {}}\n")
    report = check(app, app.plan(file), connect=False, start_timeout=None)
    (found,) = report.workers
    assert found.delivery == delivery
    assert found.warnings == ()
    marks = (" crash", " process", " commit", " failing")
    lines = [line for line in report.as_text().splitlines() if line.startswith("  ")]
    golden("\n".join(line for line in lines if any(mark in line for mark in marks)))
