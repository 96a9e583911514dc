"""Workloads of Spark: the trace, the audit, the report on dead letters, backfills."""

from __future__ import annotations

from benchmarks.workloads.workload import MILLION, Floor, TopicSpec, Workload

_GROWTH_FLOORS = (Floor("linear", 1.2, at_most=True), Floor("memory", 1.2, at_most=True))


PIPELINE = (
    Workload(
        "backfill",
        "a topic through Spark on two cores: a handler that does nothing, one of 1 ms, 64 slots",
        MILLION,
        work="backfill",
        slots=64,
        floors=(Floor("noop", 100_000), Floor("wait1", 45_000)),
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
)
