from __future__ import annotations

from collections import Counter

import pytest
from attrs import evolve

from benchmarks.breaker_scenes.catalog import SCENES
from benchmarks.once import TURNS
from benchmarks.poison import SCENES as POISON_SCENES
from benchmarks.records import records
from benchmarks.workloads import (
    PARTITIONS,
    RATIO_OF,
    SLOW_MARK,
    WAIT_S,
    WORKLOADS,
    TopicSpec,
    Workload,
)

SPEC = TopicSpec(records=4_000, value_bytes=100, keys=100)
OWN_FIGURES = {
    "confluent",
    "twice",
    "rate_error",
    "invented",
    "once",
    "empty",
    "stale_last_values",
    "poll_p99_ms",
    "notify_p99_ms",
    "batches",
    "busy",
    "memory",
    "best-fixed",
    "records_per_s",
    "early",
    "at_least_once",
    "at_least_once_10ms",
    "lost_per_kill",
    "lost_without_kill",
    "window_lost",
    "visible_p99_ms",
    "ready",
    "messages_s",
    "visibility_s",
    "push",
    "requests_s",
    "dead_letters",
    "small_p99_ratio",
    "together",
    "urgent_p99_ratio",
    "share_error",
    "strict_p99_ratio",
    "p99_lateness_ms",
    "max_lateness_ms",
    "p99_gap_ms",
    "cancelled_delivered",
    "rss_beyond_memory_mb",
    "first_delivery_s",
    "late_s",
    "waiting_rss_mb",
    "moved",
    "full_speed_after_s",
    "p99_ratio",
    "stretch_rate",
    "stretch_p99_s",
    "outage_moved",
    "outage_full_speed_s",
    "flap_moved",
    "overload_share",
    "overload_moved",
    "end_left_s",
    "batch_gap_s",
    "retries_rate",
    "shard_rate",
    "scatter_p99_ratio",
    "dead_letters_late",
    "metrics",
    "spans",
    "trace-100",
    "trace-1",
    "audit",
    "audit-ids",
    "all-on",
    "page",
    "missed",
    "false",
    "noop",
    "wait1",
    "search_id_ms",
    "search_key_ms",
    "command_s",
    "linear",
    "seconds",
    "bare-loop",
    "p50_ms",
    "p99_ms",
}
PROMISED = {
    "noop-unordered": {"tuned-loop": 0.9, "default-loop": 2.0},
    "telemetry-metrics": {
        "metrics": 0.9,
        "spans": 0.8,
        "trace-100": 0.2,
        "trace-1": 0.85,
        "audit": 0.75,
        "audit-ids": 0.25,
    },
    "telemetry-latency": {"all-on": 0.97},
    "producer": {"confluent": 0.9},
    "producer-kills": {"twice": 0},
    "noop-partition": {"tuned-loop": 0.8, "default-loop": 2.0},
    "noop-key": {"tuned-loop": 0.6},
    "batch": {"tuned-loop": 0.9},
    "wait10-16": {"ideal": 0.98},
    "wait10-100": {"ideal": 0.97},
    "wait10-400": {"ideal": 0.90},
    "wait10-key-16": {"ideal": 0.97},
    "wait10-key-100": {"ideal": 0.92},
    "async-noop": {"records_per_s": 500_000},
    "async-1000": {"ideal": 0.8},
    "skew": {"busy": 0.95},
    "redrive": {"records_per_s": 50_000},
    "replay": {"records_per_s": 50_000, "rate_error": 0.05, "twice": 0},
    "stuck-start": {"memory": 1.5, "others": 0.9},
    "fail-1": {"without": 0.7},
    "dead-10": {"records_per_s": 100_000},
    "live-window": {"page": 0.02, "missed": 0},
    "breaker": {"moved": 20, "full_speed_after_s": 2.0},
    "poison": {"p99_ratio": 1.2, "dead_letters_late": 0},
    "breaker-scenes": {
        "stretch_rate": 0.9,
        "stretch_p99_s": 2,
        "outage_moved": 20,
        "outage_full_speed_s": 2,
        "flap_moved": 20,
        "overload_share": 0.8,
        "overload_moved": 20,
        "end_left_s": 60,
        "batch_gap_s": 1,
        "retries_rate": 0.85,
        "shard_rate": 0.95,
        "scatter_p99_ratio": 1.2,
    },
    "auto": {"best-fixed": 0.9},
    "cpu-processes": {"one-thread": 1.7},
    "noop-processes": {"records_per_s": 500_000},
    "retry-levels": {"without": 0.8, "early": 0, "p99_lateness_ms": 300},
    "backfill": {"noop": 100_000, "wait1": 45_000},
    "pipeline-trace": {
        "records_per_s": 60_000,
        "search_id_ms": 150,
        "search_key_ms": 300,
        "command_s": 1,
    },
    "pipeline-trace-growth": {"linear": 1.2, "memory": 1.2},
    "pipeline-audit-growth": {"linear": 1.2, "memory": 1.2},
    "pipeline-dlq-growth": {"linear": 1.2, "memory": 1.2},
    "backfill-growth": {"linear": 1.2, "memory": 1.2},
    "pipeline-audit": {"seconds": 10, "missed": 0, "false": 0},
    "pipeline-dlq": {"seconds": 20},
    "outbox-relay": {"records_per_s": 8_000, "bare-loop": 0.8},
    "outbox-latency": {"p50_ms": 50, "p99_ms": 400, "poll_p99_ms": 1_000, "notify_p99_ms": 400},
    "outbox-kills": {"stale_last_values": 0},
    "once": {"once": 0.8, "batches": 0.9},
    "once-large": {"empty": 0.8},
    "once-kills": {"twice": 0, "invented": 0},
    "park": {"overtake": 0.8, "p99_gap_ms": 100},
    "park-scan": {"records_per_s": 150_000},
    "fair": {
        "small_p99_ratio": 3,
        "together": 0.95,
        "urgent_p99_ratio": 2,
        "share_error": 0.1,
        "strict_p99_ratio": 1.3,
    },
    "broadcast": {"ready": 1.2, "twice": 0},
    "sqs": {"messages_s": 3_000, "visibility_s": 1.0},
    "push": {"push": 0.8, "requests_s": 3_000},
    "push-outage": {"moved": 20, "dead_letters": 0},
    "delay-exact": {"early": 0, "p99_lateness_ms": 200, "max_lateness_ms": 1_000},
    "delay-exact-wheel": {"early": 0, "p99_lateness_ms": 200, "max_lateness_ms": 1_000},
    "delay-forward": {"records_per_s": 20_000},
    "delay-kills": {"early": 0, "cancelled_delivered": 0},
    "delay-kills-eos": {"early": 0, "cancelled_delivered": 0, "twice": 0},
    "delay-kills-wheel": {"early": 0, "cancelled_delivered": 0},
    "delay-wheel": {"early": 0, "late_s": 1, "waiting_rss_mb": 64},
    "eos": {"at_least_once": 0.6, "visible_p99_ms": 300},
    "eos-kills": {"twice": 0},
    "amo": {"at_least_once": 0.3, "at_least_once_10ms": 0.9},
    "hand-written": {"window_lost": 0},
    "amo-kills": {"twice": 0, "lost_per_kill": 32, "lost_without_kill": 0},
    "delay-pending": {"early": 0, "rss_beyond_memory_mb": 100, "first_delivery_s": 30},
}
each_workload = pytest.mark.parametrize("workload", WORKLOADS.values(), ids=WORKLOADS)


def test_every_promised_workload_is_there_with_its_floors() -> None:
    floors = {
        name: {floor.ratio: floor.limit for floor in workload.floors}
        for name, workload in WORKLOADS.items()
    }
    assert floors == PROMISED


@each_workload
def test_every_floor_is_about_a_figure_that_is_measured(workload: Workload) -> None:
    compared = {RATIO_OF.get(name, name) for name in workload.baselines}
    assert {floor.ratio for floor in workload.floors} <= compared | OWN_FIGURES


@each_workload
def test_every_workload_that_times_runs_at_least_three_times(workload: Workload) -> None:
    series = {"poison": len(POISON_SCENES), "breaker-scenes": len(SCENES), "once-large": TURNS}
    runs = series.get(workload.work, workload.runs)
    assert runs >= 3 or workload.work in {*COUNTING, "delay-pending", "delay-wheel"}


COUNTING = {
    "amo-kills",
    "delay-kills",
    "eos-kills",
    "hand-written",
    "once-kills",
    "outbox-kills",
    "producer-kills",
    "push-outage",
}
"""Each has kills or an outage, counts what is lost, and promises no time."""


@each_workload
def test_the_partitions_of_every_topic_can_hold_equally_many_records(workload: Workload) -> None:
    assert workload.topic.records % PARTITIONS == 0


@pytest.mark.parametrize("name", [name for name in WORKLOADS if name.startswith("wait10")])
def test_waits_take_ten_seconds_or_more_at_their_ideal_rate(name: str) -> None:
    workload = WORKLOADS[name]
    assert workload.wait_s == WAIT_S == 0.010
    assert workload.topic.records / workload.ideal_per_s >= 10.0


def test_the_same_specification_makes_the_same_records() -> None:
    assert list(records(SPEC)) == list(records(SPEC))


def test_the_partitions_take_turns() -> None:
    found = Counter(partition for partition, _, _ in records(SPEC))
    assert found == dict.fromkeys(range(PARTITIONS), SPEC.records // PARTITIONS)


def test_each_key_has_one_partition_and_all_keys_are_used() -> None:
    places = {(key, partition) for partition, key, _ in records(SPEC)}
    assert len({key for key, _ in places}) == len(places) == SPEC.keys


def test_records_have_a_key_only_when_asked_for_and_the_size_that_was_asked_for() -> None:
    found = list(records(evolve(SPEC, keys=0, value_bytes=17)))
    assert {key for _, key, _ in found} == {None}
    assert {len(value) for _, _, value in found} == {17}


def test_exactly_one_record_in_so_many_is_slow_and_none_is_longer() -> None:
    found = [value for _, _, value in records(evolve(SPEC, slow_one_in=1_000))]
    assert sum(value.startswith(SLOW_MARK) for value in found) == SPEC.records // 1_000
    assert {len(value) for value in found} == {SPEC.value_bytes}
    assert not any(value.startswith(SLOW_MARK) for _, _, value in records(SPEC))


def test_different_records_have_differently_named_topics() -> None:
    specs = [SPEC, evolve(SPEC, keys=10), evolve(SPEC, value_bytes=1), evolve(SPEC, slow_one_in=10)]
    specs += [evolve(SPEC, slow_one_in=20), evolve(SPEC, records=8)]
    assert len({spec.name for spec in specs}) == len(specs)
