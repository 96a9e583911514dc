"""The workloads: the topic's contents, the handler's work, and the floors of the figures."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from attrs import frozen

from window_consumer.dlq.redrive import BATCH_RECORDS

Ordering = Literal["unordered", "key", "partition"]
Work = Literal[
    "noop",
    "wait",
    "stuck",
    "failing",
    "dying",
    "climbing",
    "redrive",
    "replay",
    "park",
    "delay-exact",
    "delay-forward",
    "delay-kills",
    "delay-pending",
    "delay-wheel",
    "park-scan",
    "fair",
    "broadcast",
    "push",
    "push-outage",
    "outage",
    "poison",
    "breaker-scenes",
    "crowding",
    "computing",
    "telemetry",
    "page",
    "backfill",
    "trace",
    "trace-growth",
    "audit-growth",
    "dead-letters-growth",
    "backfill-growth",
    "dead-letters",
    "audit",
    "producer",
    "producer-kills",
    "once",
    "once-large",
    "once-kills",
    "outbox-relay",
    "outbox-latency",
    "outbox-kills",
    "eos",
    "eos-kills",
    "amo",
    "amo-kills",
    "hand-written",
    "sqs",
]
Store = Literal["levels", "wheel"]
Baseline = Literal[
    "tuned-loop", "default-loop", "ideal", "no-hang", "without", "one-thread", "overtake"
]

PARTITIONS = 4

RATIO_OF: dict[Baseline, str] = {"no-hang": "others"}
"""The ratio to a baseline has the baseline's name, except for these."""


@frozen
class TopicSpec:
    """What a topic holds; the same specification always makes the same records."""

    records: int
    value_bytes: int = 100
    keys: int = 0
    """How many different keys; 0: records have none."""
    slow_one_in: int = 0
    """One record in this many has a value that begins with ``SLOW_MARK``, at random; 0: none."""
    ids: bool = False
    """Records have ids in their headers."""

    @property
    def name(self) -> str:
        """The topic's name: a topic of this name is already filled."""
        slow = f"-slow{self.slow_one_in}" if self.slow_one_in else ""
        ids = "-ids" if self.ids else ""
        return f"wc-bench-{self.records}x{self.value_bytes}-{self.keys}keys{slow}{ids}"


SLOW_MARK = b"slow"


@frozen
class Floor:
    """The least or most that a figure must be: a ratio, ``records_per_s``, or a note."""

    ratio: str
    limit: float
    at_most: bool = False
    is_guarantee: bool = False
    """Missing it is a failure, like a lost record."""

    def holds(self, value: float) -> bool:
        """Return whether a measured value is good enough."""
        return value <= self.limit if self.at_most else value >= self.limit

    def worst(self, values: Sequence[float]) -> float:
        """Return the measured value that is furthest from good enough."""
        return max(values) if self.at_most else min(values)

    def __str__(self) -> str:
        return f"{'at most' if self.at_most else 'at least'} {self.limit:g}"


@frozen
class Workload:
    """One benchmark."""

    name: str
    what: str
    topic: TopicSpec
    work: Work = "noop"
    ordering: Ordering = "unordered"
    variants: tuple[str, ...] = ()
    """The kinds of telemetry that it runs with, see ``telemetry``, beside a run without."""
    slots: int = 16
    processes: bool = False
    """Its slots are child processes."""
    batch: int = 0
    """The most records in a list for the handler; 0: one record per call."""
    wait_s: float = 0.0
    """How long the handler sleeps."""
    waits_s: tuple[float, ...] = ()
    """How long it sleeps in each run of a series."""
    coroutine: bool = False
    """The handler is a coroutine function."""
    slow_wait_s: float = 0.0
    """How long it sleeps for a record with the slow mark."""
    fails: float = 0.0
    """The share of the records whose handler fails, drawn at random."""
    kills: int = 0
    """How often the untimed run's process is killed with -9."""
    may_repeat: int = 0
    """Records that may come twice because of that."""
    ids: int = 0
    """How many ids the table of ``once`` holds before it begins."""
    store: Store = "levels"
    """Where delayed records wait."""
    exact: bool = False
    """The delay service delivers exactly once."""
    memory: str = "256MiB"
    lasts_s: float = 0.0
    """How long records keep coming in; 0: they are all there at the start."""
    baselines: tuple[Baseline, ...] = ()
    floors: tuple[Floor, ...] = ()
    only: str = ""
    """Only variants with this text in their name run, where it has any."""
    runs: int = 3
    """How often it and each of its baselines run by default: once if it times nothing."""

    @property
    def wants_every_call(self) -> bool:
        """Whether a timed run may record its calls: that costs nearly nothing beside a wait.

        Not with a coroutine, of which a thousand wait at once.
        """
        return bool(self.wait_s) and not self.coroutine

    @property
    def ideal_per_s(self) -> float:
        """Slots divided by the nominal latency of the handler."""
        return self.slots / self.wait_s


WAIT_S = 0.010
_MILLION = TopicSpec(records=1_000_000, keys=10_000)
_SHORT_RUNS = 7
"""Runs of a second are cheap and scatter."""

_KILLS = 5
_A_KILL_REPEATS = 3_000
"""What a member with 16 slots finishes in 10 ms each between two commits, and a second."""

_LOOP_FLOORS = (Floor("tuned-loop", 0.8), Floor("default-loop", 2.0))
_FASTER_FLOORS = (Floor("tuned-loop", 0.9), Floor("default-loop", 2.0))
_GROWTH_FLOORS = (Floor("linear", 1.2, at_most=True), Floor("memory", 1.2, at_most=True))


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


def _exact(name: str, how: str, store: Store) -> Workload:
    return Workload(
        name,
        f"100,000 records, 5,000 a second, are delivered up to a minute later, {how}",
        TopicSpec(records=100_000),
        work="delay-exact",
        store=store,
        floors=(
            Floor("early", 0, at_most=True, is_guarantee=True),
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
        floors=(
            Floor("early", 0, at_most=True, is_guarantee=True),
            Floor("cancelled_delivered", 0, at_most=True, is_guarantee=True),
            *([Floor("twice", 0, at_most=True, is_guarantee=True)] if exact else []),
        ),
        runs=1,
    )


_ALL = (
    Workload(
        "noop-unordered",
        "1,000,000 records of 100 B on 4 partitions, the handler does nothing",
        _MILLION,
        baselines=("tuned-loop", "default-loop"),
        floors=_FASTER_FLOORS,
        runs=_SHORT_RUNS,
    ),
    Workload(
        "telemetry-metrics",
        "the same, with metrics, spans of 1 % of the slices, a trace of all or 1 %, an audit",
        _MILLION,
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
        runs=_SHORT_RUNS,
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
        _MILLION,
        ordering="partition",
        baselines=("tuned-loop", "default-loop"),
        floors=_LOOP_FLOORS,
        runs=_SHORT_RUNS,
    ),
    Workload(
        "noop-key",
        "the same, each of 10,000 keys in order",
        _MILLION,
        ordering="key",
        baselines=("tuned-loop",),
        floors=(Floor("tuned-loop", 0.6),),
        runs=_SHORT_RUNS,
    ),
    Workload(
        "batch",
        "the same, unordered, in lists of up to 1,000",
        _MILLION,
        batch=1_000,
        baselines=("tuned-loop",),
        floors=(Floor("tuned-loop", 0.9),),
        runs=_SHORT_RUNS,
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
        _MILLION,
        coroutine=True,
        slots=1_000,
        floors=(Floor("records_per_s", 500_000),),
        runs=_SHORT_RUNS,
    ),
    Workload(
        "async-1000",
        "1,000,000 records, the handler is a coroutine that sleeps 10 ms, 1,000 slots",
        _MILLION,
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
        "fail-1",
        "1,000,000 records, at random 1 % fail and succeed at the second call",
        _MILLION,
        work="failing",
        fails=0.01,
        baselines=("without",),
        floors=(Floor("without", 0.7),),
        runs=_SHORT_RUNS,
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
        _MILLION,
        slots=2,
        processes=True,
        floors=(Floor("records_per_s", 500_000),),
        runs=_SHORT_RUNS,
    ),
    Workload(
        "dead-10",
        "1,000,000 records, at random 10 % become dead letters",
        _MILLION,
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
        "live-window",
        "64 windows of 64 cells, looked at by Chromium five times a second for a minute",
        TopicSpec(records=20_480),
        work="page",
        floors=(Floor("page", 0.02, at_most=True), Floor("missed", 0, at_most=True)),
    ),
    Workload(
        "auto",
        "a handler of 1, 10, 100 ms against a downstream that slows down beyond 50 calls at once",
        _MILLION,
        work="crowding",
        waits_s=(0.001, 0.01, 0.1),
        floors=(Floor("best-fixed", 0.9),),
    ),
    Workload(
        "backfill",
        "a topic through Spark on two cores: a handler that does nothing, one of 1 ms, 64 slots",
        _MILLION,
        work="backfill",
        slots=64,
        floors=(Floor("noop", 100_000), Floor("wait1", 45_000)),
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
            Floor("twice", 0, at_most=True, is_guarantee=True),
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
        floors=(
            Floor("moved", 20, at_most=True, is_guarantee=True),
            Floor("dead_letters", 0, at_most=True, is_guarantee=True),
        ),
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
            Floor("early", 0, at_most=True, is_guarantee=True),
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
            Floor("early", 0, at_most=True, is_guarantee=True),
            Floor("late_s", 1, at_most=True),
            Floor("waiting_rss_mb", 64, at_most=True),
        ),
        runs=1,
    ),
    Workload(
        "pipeline-trace",
        "5,000,000 events of the trace become a table; 10,000,000 are searched",
        TopicSpec(records=5_000_000),
        work="trace",
        floors=(
            Floor("records_per_s", 60_000),
            Floor("search_id_ms", 150, at_most=True),
            Floor("search_key_ms", 300, at_most=True),
            Floor("command_s", 1, at_most=True),
        ),
    ),
    Workload(
        "pipeline-audit",
        "the counts of 5,000,000 records are balanced, with losses and duplicates among them",
        TopicSpec(records=5_000_000),
        work="audit",
        floors=(
            Floor("seconds", 10, at_most=True),
            Floor("missed", 0, at_most=True),
            Floor("false", 0, at_most=True),
        ),
    ),
    Workload(
        "pipeline-dlq",
        "the report on 1,000,000 dead letters, the whole command, from the pipeline's table",
        TopicSpec(records=1_000_000),
        work="dead-letters",
        floors=(Floor("seconds", 20, at_most=True),),
    ),
    Workload(
        "pipeline-trace-growth",
        "1, 2, 4 and 8 times 1,000,000 events become a table, with the same memory",
        TopicSpec(records=8_000_000),
        work="trace-growth",
        floors=_GROWTH_FLOORS,
    ),
    Workload(
        "pipeline-audit-growth",
        "the counts of 1, 2, 4 and 8 times 1,250,000 records are balanced, with the same memory",
        TopicSpec(records=10_000_000),
        work="audit-growth",
        floors=_GROWTH_FLOORS,
    ),
    Workload(
        "pipeline-dlq-growth",
        "1, 2, 4 and 8 times 500,000 dead letters: the table and the report, with the same memory",
        TopicSpec(records=4_000_000),
        work="dead-letters-growth",
        floors=_GROWTH_FLOORS,
    ),
    Workload(
        "backfill-growth",
        "a backfill of 1, 2, 4 and 8 times 250,000 records, with the same memory",
        TopicSpec(records=2_000_000),
        work="backfill-growth",
        slots=64,
        floors=_GROWTH_FLOORS,
    ),
    Workload(
        "producer",
        "Producer.send in a tight loop, in turn with confluent's produce with a callback",
        TopicSpec(records=500_000),
        work="producer",
        floors=(Floor("confluent", 0.9),),
        runs=_SHORT_RUNS,
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
        floors=(Floor("stale_last_values", 0, at_most=True, is_guarantee=True),),
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
        floors=(Floor("twice", 0, at_most=True, is_guarantee=True),),
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
            Floor("twice", 0, at_most=True, is_guarantee=True),
            Floor("lost_per_kill", 32, at_most=True, is_guarantee=True),
            Floor("lost_without_kill", 0, at_most=True, is_guarantee=True),
        ),
    ),
    Workload(
        "sqs",
        "40,000 messages of 100 B, received and deleted in tens by four clients over HTTP; then 20"
        " of a client that has died",
        TopicSpec(records=40_000),
        work="sqs",
        floors=(Floor("messages_s", 3_000), Floor("visibility_s", 1.0, at_most=True)),
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
        floors=(Floor("window_lost", 0, at_most=True, is_guarantee=True),),
    ),
)

WORKLOADS: dict[str, Workload] = {workload.name: workload for workload in _ALL}
