"""A made-up comparison, for tests of tables and charts."""

from __future__ import annotations

from typing import Any

from benchmarks.peers.comparison import Comparison, Row
from benchmarks.peers.contents import Contents, Filled, fill
from benchmarks.peers.journal import Journal
from benchmarks.peers.turns import Turn
from benchmarks.peers.verdict import Verdict

MS = 1_000_000

CONTENTS = Contents(records=60, keys=6, partitions=2, shortest_us=2_000, longest_us=2_000)
FILLED: Filled = fill(CONTENTS)
ALL_COMMITTED = dict(enumerate(FILLED.log_ends))

Entry = tuple[int, int, int, int]


def faultless() -> list[Entry]:
    """Every record once: 5 ms after its hand-over it begins, one after another, for 2 ms."""
    begins = ((number, (10 + 3 * number) * MS) for number in range(CONTENTS.records))
    return [(number, at - 5 * MS, at, at + 2 * MS) for number, at in begins]


def journal(entries: list[Entry]) -> Journal:
    return Journal.of(sorted(entries, key=lambda entry: entry[3]))


def verdict(**more: Any) -> Verdict:
    counts = dict.fromkeys(("lost", "repeated", "out_of_order", "at_once", "uncommitted"), 0)
    known: dict[str, Any] = {"records": 1_000, "handled": 1_000, "seconds": 1.0, **counts}
    return Verdict(**{**known, "p50_ms": 5.0, "p99_ms": 40.0, **more})


def turn(rate: float | None = 900.0, *, timed: bool = True, problem: str = "", **more: Any) -> Turn:
    return Turn(
        timed=timed,
        records_per_s=rate,
        verdict=verdict(**more),
        cpu_s=1.0,
        max_rss_mb=50.0,
        stop_s=0.1,
        problem=problem,
        versions={"some-client": "1.2.3"},
    )


def row(peer: str, workload: str = "zipf", *turns: Turn, failed: str = "") -> Row:
    return Row(peer, workload, 1_000, 1.0, turns, failed)


COMPARISON = Comparison(
    machine={
        "measured": "2026-01-01",
        "processor": "Abacus",
        "cores": 2,
        "memory_gib": 23.5,
        "system": "Linux 6",
        "kafka": "4.3.0",
        "load_before": 0.1,
        "runs": "one run each",
    },
    rows=(
        row("aiokafka", "zipf", turn(100.0, handled=400, uncommitted=7)),
        row("parallel-consumer-key", "zipf", turn(450.0, lost=3, repeated=4)),
        row("window-key", "zipf", turn(900.0)),
        row("window-unordered", "zipf", turn(600.0, out_of_order=11, at_once=12)),
        row("window-key", "noop", turn(10.0), turn(5_000.0, timed=False, at_once=None)),
        row("aiokafka", "noop", failed="aiokafka ended with code 1; it said: trouble\nmore"),
    ),
    missing={"parallel-consumer-unordered": "no `mvn` found"},
)
