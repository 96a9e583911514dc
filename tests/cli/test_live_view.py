"""The live window: what it shows, where it fits, and what cannot get through it."""

from __future__ import annotations

import io
from typing import Any

import attrs
import pytest
from rich.console import Console

from tests.golden_texts import Golden
from tests.telemetry.workers import a_snapshot
from window_consumer.admin.commands.live_view import view
from window_consumer.admin.commands.screen import Memory, TopScene, WorkerScene
from window_consumer.admin.commands.worker_lines import duration
from window_consumer.engine.counters import Counters
from window_consumer.engine.guards.breaker_state import BreakerState
from window_consumer.engine.latency_histogram import BOUNDS_S, Histogram
from window_consumer.engine.windows_snapshot import (
    BreakerSnapshot,
    CallSnapshot,
    CellSnapshot,
    CellState,
    Lag,
    LimitSnapshot,
    ParkedKey,
    ParkedKeys,
    PartitionSnapshot,
    PauseSnapshot,
    WindowsSnapshot,
)
from window_consumer.model.record import TopicPartition

EVIL = "\x1b]0;owned\x07\x1b[2J[bold red]x[/bold red]\u202e\ud800"
HARMLESS = r"\x1b]0;owned\x07\x1b[2J[bold red]x[/bold red]"


def drawn(*workers: WorkerScene, width: int = 80, height: int | None = None, **more: Any) -> str:
    file = io.StringIO()
    console = Console(file=file, width=width, highlight=False)
    console.print(view(TopScene("top", 1.5, workers, **more), width, height))
    return file.getvalue()


def shown(snapshot: WindowsSnapshot, name: str = "charge", **more: Any) -> WorkerScene:
    return WorkerScene(name, snapshot, **more)


def windows(count: int, cells: int = 32) -> tuple[PartitionSnapshot, ...]:
    (one,) = a_snapshot().partitions
    return tuple(
        attrs.evolve(
            one,
            name=TopicPartition("orders", number),
            capacity_cells=cells,
            cells=(CellSnapshot(CellState.RUNNING, 0, 500, 500),) * (cells // 2),
            hovering_s=0.0,
            lag=Lag(number, float(number)),
        )
        for number in range(count)
    )


def test_it_shows_how_far_each_partition_is_behind_and_what_calls_take(golden: Golden) -> None:
    counts = [0] * (len(BOUNDS_S) + 1)
    counts[BOUNDS_S.index(0.01)], counts[BOUNDS_S.index(0.1)] = 90, 10
    text = drawn(
        shown(
            attrs.evolve(a_snapshot(), partitions=windows(3)),
            per_s=1234.4,
            durations=Histogram(tuple(counts), 1.0),
            busy_ratio=0.5,
            time_to_drain_s=90.0,
        )
    )
    assert "orders[2]" in text
    assert "2, 2 s" in text
    assert "3 processed (1,234/s), 0 retried, 0 dead-lettered; 1 of 8 slots busy" in text
    assert "lag 3 records, 2 s; calls p50 7.78 ms p95 87.5 ms p99 97.5 ms" in text
    golden(text)
    still = drawn(shown(a_snapshot(), busy_ratio=0.0, time_to_drain_s=float("inf")))
    golden(still)


def test_it_says_what_leaves_and_why_and_what_the_worker_does_about_it(golden: Golden) -> None:
    seen = a_snapshot()
    seen.counters.dead_by.update({"FATAL": 2, "STALLED": 1})
    seen.counters.moved_to["10s"] = 7
    text = drawn(
        shown(
            attrs.evolve(
                seen,
                breaker=BreakerSnapshot(BreakerState.OPEN, 30, 40, 2.5),
                limit=LimitSnapshot(4, 5, "more do not help"),
            ),
            state="draining",
        )
    )
    golden(text)
    assert "draining; 3 processed" in text


def test_it_shows_parked_keys_and_what_waits_behind_them(golden: Golden) -> None:
    longest = tuple(
        ParkedKey(TopicPartition("orders", 0), number, f"key {number}", 300.0 - number, 3)
        for number in range(6)
    )
    scene = shown(attrs.evolve(a_snapshot(), parked=ParkedKeys(50, 120, longest)))
    golden(drawn(scene))
    assert "'key 5'" in drawn(scene)
    assert "'key 4'" not in drawn(scene, height=24)
    nothing_waits = attrs.evolve(a_snapshot(), parked=ParkedKeys(50, 0, ()))
    assert "ladder" not in drawn(shown(nothing_waits))


def test_what_a_person_has_paused_is_reported() -> None:
    (one,) = windows(1)
    seen = attrs.evolve(a_snapshot(), partitions=(attrs.evolve(one, halted=True),), halted=True)
    text = drawn(shown(seen))
    assert "1 by hand" in text
    assert "paused manually; 3 processed" in text
    pause = PauseSnapshot("ops", "bank\x1b[2J", 90.0)
    text = drawn(shown(attrs.evolve(seen, pause=pause)))
    assert " by ops " in text
    assert "\x1b" not in text


def test_a_cell_that_hovers_and_the_call_that_holds_it_are_to_be_seen(golden: Golden) -> None:
    text = drawn(shown(a_snapshot()))
    assert "[H■__]" in text
    golden(text)


@pytest.mark.parametrize("cells", [4, 32, 40, 64, 1000])
def test_it_fits_into_eighty_columns_with_both_ends_of_each_window(cells: int) -> None:
    text = drawn(shown(attrs.evolve(a_snapshot(), partitions=windows(3, cells))))
    assert max(map(len, text.splitlines())) <= 80
    rows = [line for line in text.splitlines() if line.startswith(" orders[")]
    assert len(rows) == 3
    assert all("[▸▸" in row and row.count("_") >= 1 for row in rows)


@pytest.mark.parametrize(
    ("width", "columns"), [(30, 2), (40, 2), (50, 3), (60, 4), (80, 4), (200, 4)]
)
@pytest.mark.parametrize("topic", ["orders", "shop-charge.customers.retry.10m"])
def test_partitions_and_their_windows_are_there_however_narrow_the_terminal_is(
    width: int, columns: int, topic: str
) -> None:
    (one,) = windows(1)
    one = attrs.evolve(one, name=TopicPartition(topic, 3), next_offset=123456)
    lines = drawn(shown(attrs.evolve(a_snapshot(), partitions=(one,))), width=width).splitlines()
    assert max(map(len, lines)) <= width
    (first,) = [number for number, line in enumerate(lines) if "[▸▸" in line]
    (after,) = [number for number, line in enumerate(lines) if " 3 processed" in line]
    rows = lines[first:after]
    assert "".join(row.split()[0] for row in rows) == f"{topic}[3]"
    assert rows[0].rstrip().endswith("0, 0 s")
    assert rows[0].count("]") == 1 + (rows[0].count("[") - 1)
    if topic == "orders":
        assert ("123456" in rows[0], " 1 " in rows[0]) == (columns > 3, columns > 2)


def test_who_has_called_nothing_yet_does_not_tell_how_long_calls_take(golden: Golden) -> None:
    seen = a_snapshot()
    golden(drawn(shown(seen)))
    golden(drawn(shown(attrs.evolve(seen, counters=Counters()))))


def test_the_end_cell_of_a_long_window_is_shown() -> None:
    (one,) = windows(1, 1000)
    last = CellSnapshot(CellState.RETRYING, 0, 500, 1)
    seen = attrs.evolve(one, cells=(*one.cells, last))
    row = drawn(shown(attrs.evolve(a_snapshot(), partitions=(seen,))))
    assert "…▸▸▸▸▸▸▸r_]" in row


def test_of_many_partitions_a_low_terminal_shows_those_in_most_trouble() -> None:
    text = drawn(shown(attrs.evolve(a_snapshot(), partitions=windows(64))), height=24)
    assert len(text.splitlines()) <= 24
    assert "orders[63]" in text
    assert " orders[0]  " not in text
    assert "and 52 more" in text


def test_texts_from_outside_command_no_terminal_and_are_no_markup() -> None:
    seen = a_snapshot()
    name = TopicPartition(EVIL, 0)
    seen.counters.dead_by[EVIL] = 1
    text = drawn(
        shown(
            attrs.evolve(
                seen,
                partitions=tuple(attrs.evolve(each, name=name) for each in seen.partitions),
                calls=(CallSnapshot(name, 0, 1, 9.0, 0),),
                limit=LimitSnapshot(4, 5, EVIL),
            ),
            name=EVIL,
            state=EVIL,
        ),
        width=400,
        gone={EVIL: EVIL},
    )
    assert [each for each in text if not each.isprintable() and each != "\n"] == []
    assert text.count(HARMLESS) == 8
    assert text.count(r"\u202e") == text.count(r"\ud800") == text.count(HARMLESS)


def test_a_short_name_is_no_markup_either() -> None:
    text = drawn(shown(a_snapshot(), name="[b]\x1bx[/b]"))
    assert r"[b]\x1bx[/b]" in text


def test_what_is_gone_is_reported() -> None:
    assert "http://a:1: gone: refused" in drawn(gone={"http://a:1": "gone: refused"})


def test_rates_are_of_the_last_seconds() -> None:
    memory, seen = Memory(), a_snapshot()
    assert memory.worker("charge", seen, 0.0).per_s is None
    for seconds in range(1, 21):
        seen = attrs.evolve(seen, counters=seen.counters.copy())
        seen.counters.processed += 100 if seconds <= 5 else 20
        scene = memory.worker("charge", seen, float(seconds))
    assert scene.per_s == pytest.approx(20.0)


def test_a_process_that_was_started_anew_has_no_rate_below_zero() -> None:
    memory, seen = Memory(), a_snapshot()
    later = attrs.evolve(seen, counters=attrs.evolve(seen.counters, delivered=0))
    later.counters.processed = 0
    memory.worker("charge", seen, 0.0)
    assert memory.worker("charge", later, 1.0).per_s is None


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        *((0.0, "0 s"), (0.00005, "50 µs"), (0.0123, "12.3 ms"), (1.5, "1.5 s"), (119.0, "119 s")),
        *((600.0, "10 min"), (7200.0, "2 h")),
    ],
)
def test_durations_are_brief(seconds: float, text: str) -> None:
    assert duration(seconds) == text
