"""What ``check`` works out of a configuration, and which lines it names."""

from __future__ import annotations

from typing import Any

import pytest

from tests.applications import SHOP
from tests.commands import Commands

MIB = 2**20


@pytest.fixture
def shop(commands: Commands) -> Commands:
    commands.application(SHOP)
    commands.configure("workers:\n  charge: {group: shop}\n")
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


def test_check_says_how_often_a_record_can_kill_the_process(shop: Commands) -> None:
    text = shop.run("check", "shop:app").out
    assert "a record that kills the process has left after 5 such ends, after 9 where" in text


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
    assert found["crash_takeover_s"] == pytest.approx(9)
    assert found["planned_takeover_s"] == pytest.approx(9 + 4)
    assert found["stop_s"] == pytest.approx(3 + 5)
    assert bounds(shop)["crash_takeover_s"] == pytest.approx(45)


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


def test_a_blocking_lane_has_no_end_of_retries(shop: Commands) -> None:
    found = bounds(shop, "ordering=key", "retry.on_failure=block")
    assert (found["calls"], found["retry_elapsed_s"]) == (None, None)
    ended = shop.run(
        *("check", "shop:app", "--set", "workers.charge.ordering=key"),
        *("--set", "workers.charge.retry.on_failure=block"),
    )
    assert "a failing record is called again without end; its lane waits" in ended.out


@pytest.mark.parametrize(
    ("overrides", "warning"),
    [
        (["ordering=partition", "retry.on_failure=overtake"], "one record of a partition at a"),
        (
            ["ordering=key", "retry.on_failure=block", "retry.attempts=7"],
            "retry.attempts has no effect with on_failure: block",
        ),
        (
            ["retry.when_spent=stop", "retry.on_oversize=reference"],
            "retry.on_oversize has no effect with when_spent: stop",
        ),
        (
            ["window.cells=2", "window.cell_records=3"],
            "concurrency 16 is more than a window of 6 records can feed",
        ),
    ],
)
def test_settings_that_contradict_each_other_are_warned_of(
    shop: Commands, overrides: list[str], warning: str
) -> None:
    assert any(warning in each for each in bounds(shop, *overrides)["warnings"])


def test_defaults_have_nothing_to_be_warned_of(shop: Commands) -> None:
    assert bounds(shop)["warnings"] == []


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


def test_a_mistake_leaves_nothing_on_stdout_for_whoever_reads_json(shop: Commands) -> None:
    ended = shop.run("check", "shop:app", "--json", "--set", "workers.charge.concurrency=0")
    assert (ended.code, ended.out) == (2, "")
    assert "--set workers.charge.concurrency" in ended.err
