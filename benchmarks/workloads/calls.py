"""Workloads of calls that succeed: their rate, their order, what watches them."""

from __future__ import annotations

from benchmarks.workloads.workload import (
    MILLION,
    SHORT_RUNS,
    WAIT_S,
    Floor,
    Ordering,
    TopicSpec,
    Workload,
)

_LOOP_FLOORS = (Floor("tuned-loop", 0.8), Floor("default-loop", 2.0))
_FASTER_FLOORS = (Floor("tuned-loop", 0.9), Floor("default-loop", 2.0))


def _waiting(
    slots: int, records: int, floor: float, *, ordering: Ordering = "unordered"
) -> Workload:
    by_key = ", 1,000 keys in order" if ordering == "key" else ""
    return Workload(
        name=f"wait10-{'key-' if ordering == 'key' else ''}{slots}",
        what=f"{records:,} records, the handler sleeps 10 ms, {slots} slots{by_key}",
        topic=TopicSpec(records=records, keys=1_000),
        work="wait",
        ordering=ordering,
        slots=slots,
        wait_s=WAIT_S,
        baselines=("ideal",),
        floors=(Floor("ideal", floor),),
    )


CALLS = (
    Workload(
        "noop-unordered",
        "1,000,000 records of 100 B on 4 partitions, the handler does nothing",
        MILLION,
        baselines=("tuned-loop", "default-loop"),
        floors=_FASTER_FLOORS,
        runs=SHORT_RUNS,
    ),
    Workload(
        "telemetry-metrics",
        "the same, with metrics, spans of 1 % of the slices, a trace of all or 1 %, an audit",
        MILLION,
        work="telemetry",
        variants=("metrics", "spans", "trace-100", "trace-1", "audit", "audit-ids"),
        floors=(
            Floor("metrics", 0.9),
            Floor("spans", 0.8),
            Floor("trace-100", 0.2),
            Floor("trace-1", 0.85),
            Floor("audit", 0.75),
            Floor("audit-ids", 0.25),
        ),
        runs=SHORT_RUNS,
    ),
    Workload(
        "telemetry-latency",
        "120,000 records, the handler sleeps 10 ms, 100 slots; everything is traced and counted",
        TopicSpec(records=120_000, keys=1_000),
        work="telemetry",
        slots=100,
        wait_s=WAIT_S,
        variants=("all-on",),
        floors=(Floor("all-on", 0.97),),
    ),
    Workload(
        "noop-partition",
        "the same, each partition in order",
        MILLION,
        ordering="partition",
        baselines=("tuned-loop", "default-loop"),
        floors=_LOOP_FLOORS,
        runs=SHORT_RUNS,
    ),
    Workload(
        "noop-key",
        "the same, each of 10,000 keys in order",
        MILLION,
        ordering="key",
        baselines=("tuned-loop",),
        floors=(Floor("tuned-loop", 0.6),),
        runs=SHORT_RUNS,
    ),
    Workload(
        "batch",
        "the same, unordered, in lists of up to 1,000",
        MILLION,
        batch=1_000,
        baselines=("tuned-loop",),
        floors=(Floor("tuned-loop", 0.9),),
        runs=SHORT_RUNS,
    ),
    # Some 12 s each, so that the beginning and the end weigh little.
    _waiting(16, 20_000, 0.98),
    _waiting(100, 120_000, 0.97),
    _waiting(400, 480_000, 0.90),
    _waiting(16, 20_000, 0.97, ordering="key"),
    _waiting(100, 120_000, 0.92, ordering="key"),
    Workload(
        "async-noop",
        "1,000,000 records of 100 B on 4 partitions, the handler is a coroutine that does nothing",
        MILLION,
        coroutine=True,
        slots=1_000,
        floors=(Floor("records_per_s", 500_000),),
        runs=SHORT_RUNS,
    ),
    Workload(
        "async-1000",
        "1,000,000 records, the handler is a coroutine that sleeps 10 ms, 1,000 slots",
        MILLION,
        work="wait",
        coroutine=True,
        slots=1_000,
        wait_s=WAIT_S,
        baselines=("ideal",),
        floors=(Floor("ideal", 0.8),),
    ),
    Workload(
        "skew",
        "60,000 records, the handler sleeps 1 ms, for one in 1,000 of them 2 s, 16 slots",
        TopicSpec(records=60_000, slow_one_in=1_000),
        work="wait",
        wait_s=0.001,
        slow_wait_s=2.0,
        floors=(Floor("busy", 0.95),),
    ),
    Workload(
        "stuck-start",
        "1 KiB values come in for 20 s, the first record of one partition hangs, memory: 64MiB",
        TopicSpec(records=400_000, value_bytes=1024),
        work="stuck",
        memory="64MiB",
        lasts_s=20.0,
        baselines=("no-hang",),
        floors=(Floor("memory", 1.5, at_most=True), Floor("others", 0.9)),
    ),
    Workload(
        "cpu-processes",
        "20,000 records, the handler computes for 200 us, 2 child processes",
        TopicSpec(records=20_000, keys=1_000),
        work="computing",
        slots=2,
        processes=True,
        baselines=("one-thread",),
        floors=(Floor("one-thread", 1.7),),
    ),
    Workload(
        "noop-processes",
        "1,000,000 records of 100 B, the handler does nothing, 2 child processes",
        MILLION,
        slots=2,
        processes=True,
        floors=(Floor("records_per_s", 500_000),),
        runs=SHORT_RUNS,
    ),
    Workload(
        "live-window",
        "64 windows of 64 cells, looked at by Chromium five times a second for a minute",
        TopicSpec(records=20_480),
        work="page",
        floors=(Floor("page", 0.02, at_most=True), Floor("missed", 0, at_most=True)),
    ),
    Workload(
        "auto",
        "a handler of 1, 10, 100 ms against a downstream that slows down beyond 50 calls at once",
        MILLION,
        work="crowding",
        waits_s=(0.001, 0.01, 0.1),
        floors=(Floor("best-fixed", 0.9),),
    ),
    Workload(
        "fair",
        "a small tenant and an urgent topic beside backlogs; the handler sleeps 10 ms",
        TopicSpec(records=0),
        work="fair",
        floors=(
            Floor("small_p99_ratio", 3, at_most=True),
            Floor("together", 0.95),
            Floor("urgent_p99_ratio", 2, at_most=True),
            Floor("share_error", 0.1, at_most=True),
            Floor("strict_p99_ratio", 1.3, at_most=True),
        ),
    ),
    Workload(
        "broadcast",
        "3 processes read 100,000 records of 100 B into a cache each, beside 3 bare readers",
        TopicSpec(records=100_000, keys=10_000),
        work="broadcast",
        floors=(
            Floor("ready", 1.2, at_most=True),
            Floor("twice", 0, at_most=True, is_guarantee=True),
        ),
    ),
)
