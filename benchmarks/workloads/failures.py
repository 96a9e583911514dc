"""Workloads of calls that fail: retries, the breaker, dead letters, parked records."""

from __future__ import annotations

from benchmarks.workloads.workload import MILLION, SHORT_RUNS, Floor, TopicSpec, Workload, never
from window_consumer.dlq.redrive import BATCH_RECORDS

_KILLS = 5
_A_KILL_REPEATS = 3_000
"""What a member with 16 slots finishes in 10 ms each between two commits, and a second."""


FAILURES = (
    Workload(
        "fail-1",
        "1,000,000 records, at random 1 % fail and succeed at the second call",
        MILLION,
        work="failing",
        fails=0.01,
        baselines=("without",),
        floors=(Floor("without", 0.7),),
        runs=SHORT_RUNS,
    ),
    Workload(
        "dead-10",
        "1,000,000 records, at random 10 % become dead letters",
        MILLION,
        work="dying",
        fails=0.1,
        floors=(Floor("records_per_s", 100_000),),
    ),
    Workload(
        "retry-levels",
        "200,000 records, the handler sleeps 10 ms; 20,000 fail, and climb levels of 1, 2 and 5 s",
        TopicSpec(records=200_000, keys=1_000),
        work="climbing",
        slots=100,
        wait_s=0.01,
        fails=20_000 / 200_000,
        baselines=("without",),
        floors=(
            Floor("without", 0.8),
            Floor("early", 0, at_most=True),
            Floor("p99_lateness_ms", 300, at_most=True),
        ),
    ),
    Workload(
        "breaker",
        "240,000 records, the handler sleeps 1 ms; after 5 s every call fails, for 20 s",
        TopicSpec(records=240_000, keys=1_000),
        work="outage",
        wait_s=0.001,
        floors=(Floor("moved", 20, at_most=True), Floor("full_speed_after_s", 2.0, at_most=True)),
    ),
    Workload(
        "poison",
        "720 records at a time, of which 1, 10 and 30 % always fail; the handler sleeps 200 ms",
        TopicSpec(records=720),
        work="poison",
        ordering="key",
        slots=64,
        wait_s=0.2,
        floors=(Floor("p99_ratio", 1.2, at_most=True), Floor("dead_letters_late", 0, at_most=True)),
        runs=1,
    ),
    Workload(
        "breaker-scenes",
        "stretches of poison, outages, flaps, overloads and more, each in several variants",
        TopicSpec(records=0),
        work="breaker-scenes",
        floors=(
            Floor("stretch_rate", 0.9),
            Floor("stretch_p99_s", 2.0, at_most=True),
            Floor("outage_moved", 20, at_most=True, is_guarantee=True),
            Floor("outage_full_speed_s", 2.0, at_most=True),
            Floor("flap_moved", 20, at_most=True, is_guarantee=True),
            Floor("overload_share", 0.8),
            Floor("overload_moved", 20, at_most=True, is_guarantee=True),
            Floor("end_left_s", 60.0, at_most=True),
            Floor("batch_gap_s", 1.0, at_most=True),
            Floor("retries_rate", 0.85),
            Floor("shard_rate", 0.95),
            Floor("scatter_p99_ratio", 1.2, at_most=True),
        ),
        runs=1,
    ),
    Workload(
        "redrive",
        f"100,000 dead letters go back, once killed {_KILLS} times with -9 on the way",
        TopicSpec(records=100_000, keys=10_000),
        work="redrive",
        kills=_KILLS,
        may_repeat=_KILLS * BATCH_RECORDS,
        floors=(Floor("records_per_s", 50_000),),
    ),
    Workload(
        "replay",
        f"100,000 records are replayed, once killed {_KILLS} times with -9 on the way; and 20,000"
        " at 5,000/s",
        TopicSpec(records=100_000, keys=10_000),
        work="replay",
        kills=_KILLS,
        may_repeat=_KILLS * BATCH_RECORDS,
        floors=(
            Floor("records_per_s", 50_000),
            Floor("rate_error", 0.05, at_most=True, is_guarantee=True),
            never("twice"),
        ),
    ),
    Workload(
        "park",
        "200,000 records by key, the handler sleeps 10 ms; one key in 100 fails for 12 s; once for"
        " 60 s, with 10 kills and 5 rebalances",
        TopicSpec(records=200_000, keys=10_000),
        work="park",
        kills=10,
        may_repeat=10 * _A_KILL_REPEATS,
        ordering="key",
        slots=100,
        wait_s=0.01,
        baselines=("overtake",),
        floors=(Floor("overtake", 0.8), Floor("p99_gap_ms", 100, at_most=True)),
    ),
    Workload(
        "park-scan",
        "a worker reads 300,000 parked copies before it starts",
        TopicSpec(records=300_000, keys=10_000),
        work="park-scan",
        floors=(Floor("records_per_s", 150_000),),
    ),
)
