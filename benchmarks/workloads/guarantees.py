"""Workloads that count what is lost, repeated or out of order: writing, once, outbox, kills."""

from __future__ import annotations

from benchmarks.workloads.workload import SHORT_RUNS, WAIT_S, Floor, TopicSpec, Workload, never

GUARANTEES = (
    Workload(
        "producer",
        "Producer.send in a tight loop, in turn with confluent's produce with a callback",
        TopicSpec(records=500_000),
        work="producer",
        floors=(Floor("confluent", 0.9),),
        runs=SHORT_RUNS,
    ),
    Workload(
        "producer-kills",
        "2,000 records a second to three brokers, which are killed, paused, restarted: 6 times",
        TopicSpec(records=0),
        work="producer-kills",
        kills=6,
        floors=(Floor("twice", 0, at_most=True),),
        runs=1,
    ),
    Workload(
        "once",
        "4,000 records, each a transaction with once or one by hand; 100,000 in batches of 100",
        TopicSpec(records=4_000),
        work="once",
        floors=(Floor("once", 0.8), Floor("batches", 0.9)),
    ),
    Workload(
        "once-large",
        "4,000 records with once, in turn with an empty table and with one of 20 million ids",
        TopicSpec(records=4_000),
        work="once-large",
        ids=20_000_000,
        floors=(Floor("empty", 0.8),),
        runs=1,
    ),
    Workload(
        "once-kills",
        "8,000 records through once, killed 20 times with -9, with 3 rebalances and a redrive; and"
        " 2,000 each in batches, as coroutines, in children, with levels, fenced, and frozen",
        TopicSpec(records=8_000),
        work="once-kills",
        kills=20,
        runs=1,
        floors=(Floor("twice", 0, at_most=True), Floor("invented", 0, at_most=True)),
    ),
    Workload(
        "outbox-relay",
        "40,000 rows of an outbox in PostgreSQL are relayed, in turn with a loop written by hand",
        TopicSpec(records=40_000, keys=10_000),
        work="outbox-relay",
        floors=(Floor("records_per_s", 8_000), Floor("bare-loop", 0.8)),
    ),
    Workload(
        "outbox-latency",
        "100 transactions a second, for 7 s: from the commit to Kafka's ack; then with the relay"
        " in another process, which polls or is notified, until the record is read",
        TopicSpec(records=700),
        work="outbox-latency",
        floors=(
            Floor("p50_ms", 50, at_most=True),
            Floor("p99_ms", 400, at_most=True),
            Floor("poll_p99_ms", 1_000, at_most=True),
            Floor("notify_p99_ms", 400, at_most=True),
        ),
    ),
    Workload(
        "outbox-kills",
        "6,000 rows of 4 writers, some too large, while 4 relays are killed 10 times with -9 and"
        " frozen 3 times, and the broker restarts",
        TopicSpec(records=6_000),
        work="outbox-kills",
        kills=10,
        runs=1,
        floors=(never("stale_last_values"),),
    ),
    Workload(
        "eos",
        "200,000 records are forwarded with exactly_once, in turn with at_least_once; then 500 a"
        " second until a reader sees them",
        TopicSpec(records=200_000, keys=10_000),
        work="eos",
        floors=(Floor("at_least_once", 0.6), Floor("visible_p99_ms", 300, at_most=True)),
    ),
    Workload(
        "eos-kills",
        "500 records a second are forwarded with exactly_once, some over a level, by members that"
        " are killed 20 times with -9 and frozen twice, with 5 rebalances",
        TopicSpec(records=0),
        work="eos-kills",
        ordering="key",
        wait_s=0.002,
        kills=20,
        runs=1,
        floors=(never("twice"),),
    ),
    Workload(
        "amo",
        "no-op handler with at_most_once, in turn with at_least_once; then 30,000 calls of 10 ms",
        TopicSpec(records=1_000_000),
        work="amo",
        floors=(Floor("at_least_once", 0.3), Floor("at_least_once_10ms", 0.9)),
    ),
    Workload(
        "amo-kills",
        "90,000 calls of 50 ms with at_most_once, by members that are killed 20 times with -9, with"
        " 5 rebalances",
        TopicSpec(records=90_000, keys=10_000),
        work="amo-kills",
        ordering="key",
        wait_s=0.05,
        kills=20,
        runs=1,
        floors=(
            never("twice"),
            Floor("lost_per_kill", 32, at_most=True, is_guarantee=True),
            never("lost_without_kill"),
        ),
    ),
    Workload(
        "hand-written",
        "9,600 calls of 0 to 20 ms, one in 200 of 0.5 s, by three threading models that people"
        " write by hand, and a window; each is killed five times with -9",
        TopicSpec(records=9_600, keys=1_000, slow_one_in=200),
        work="hand-written",
        wait_s=WAIT_S,
        slow_wait_s=0.5,
        kills=5,
        runs=1,
        floors=(never("window_lost"),),
    ),
)
