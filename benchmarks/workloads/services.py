"""Workloads of services beside the worker: delays, push to a URL, receiving over HTTP."""

from __future__ import annotations

from benchmarks.workloads.workload import Floor, Store, TopicSpec, Workload, never


def _exact(name: str, how: str, store: Store) -> Workload:
    return Workload(
        name,
        f"100,000 records, 5,000 a second, are delivered up to a minute later, {how}",
        TopicSpec(records=100_000),
        work="delay-exact",
        store=store,
        floors=(
            never("early"),
            Floor("p99_lateness_ms", 200, at_most=True),
            Floor("max_lateness_ms", 1000, at_most=True),
        ),
    )


def _delay_kills(name: str, how: str, store: Store, *, exact: bool = False) -> Workload:
    return Workload(
        name,
        "40,000 records are delivered or cancelled within two minutes, with 5 kills and 2"
        f" rebalances, {how}",
        TopicSpec(records=40_000),
        work="delay-kills",
        store=store,
        exact=exact,
        kills=5,
        floors=(never("early"), never("cancelled_delivered"), *([never("twice")] if exact else [])),
        runs=1,
    )


SERVICES = (
    Workload(
        "push",
        "40,000 records of 100 B are posted to a URL, 32 at once, beside a bare loop of aiohttp",
        TopicSpec(records=40_000),
        work="push",
        slots=32,
        floors=(Floor("push", 0.8), Floor("requests_s", 3_000)),
    ),
    Workload(
        "push-outage",
        "80,000 records, 1,000 a second, are posted to a URL that answers 404 for a minute",
        TopicSpec(records=80_000),
        work="push-outage",
        slots=32,
        floors=(Floor("moved", 20, at_most=True, is_guarantee=True), never("dead_letters")),
        runs=1,
    ),
    _exact("delay-exact", "over levels", "levels"),
    _exact("delay-exact-wheel", "from a wheel", "wheel"),
    Workload(
        "delay-forward",
        "200,000 records go from the entry topic of the delay service into a level",
        TopicSpec(records=200_000),
        work="delay-forward",
        floors=(Floor("records_per_s", 20_000),),
    ),
    _delay_kills("delay-kills", "over levels", "levels"),
    _delay_kills("delay-kills-eos", "with delivery: exactly_once", "levels", exact=True),
    _delay_kills("delay-kills-wheel", "from wheels, each member with files of its own", "wheel"),
    Workload(
        "delay-pending",
        "1,000,000 records wait in levels for up to two hours; the service is stopped and started",
        TopicSpec(records=1_000_000),
        work="delay-pending",
        floors=(
            never("early"),
            Floor("rss_beyond_memory_mb", 100, at_most=True),
            Floor("first_delivery_s", 30, at_most=True),
        ),
        runs=1,
    ),
    Workload(
        "delay-wheel",
        "100,000 records of one second are delivered from a wheel; 1,000,000 wait in it, also at"
        " a restart and on a new host",
        TopicSpec(records=100_000),
        work="delay-wheel",
        floors=(
            never("early"),
            Floor("late_s", 1, at_most=True),
            Floor("waiting_rss_mb", 64, at_most=True),
        ),
        runs=1,
    ),
    Workload(
        "sqs",
        "40,000 messages of 100 B, received and deleted in tens by four clients over HTTP; then 20"
        " of a client that has died",
        TopicSpec(records=40_000),
        work="sqs",
        floors=(Floor("messages_s", 3_000), Floor("visibility_s", 1.0, at_most=True)),
    ),
)
