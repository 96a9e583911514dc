"""Whole runs, children and all, on a real Kafka; small ones."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
from attrs import evolve
from confluent_kafka import Producer

from benchmarks import children
from benchmarks.runs import measure
from benchmarks.topics import Topics
from benchmarks.workloads import PARTITIONS, WORKLOADS, TopicSpec
from tests.golden_texts import Golden
from window_consumer.model.errors import RunError
from window_consumer.testing.real_kafka import RealKafka

pytestmark = pytest.mark.slow


@pytest.fixture
def topics(kafka: RealKafka) -> Topics:
    return Topics(kafka.bootstrap)


@pytest.fixture
def spec(topics: Topics) -> Iterator[TopicSpec]:
    """A small topic, gone afterwards."""
    small = TopicSpec(records=2_000, keys=40)
    yield small
    topics.delete(small.name)


def test_a_workload_by_key_runs_beside_its_loop_and_nothing_is_wrong(
    topics: Topics, spec: TopicSpec, golden: Golden
) -> None:
    said: list[str] = []
    workload = evolve(WORKLOADS["noop-key"], topic=spec, floors=())
    found = measure(workload, topics, 1, said.append)
    assert list(found.failures()) == []
    assert found.ratios["tuned-loop"] > 0
    assert len(found.checks) == len(found.runs) == len(found.baselines["tuned-loop"]) == 1
    assert said[0] == f"filling {spec.name} with 2,000 records"
    golden(said[1])


def test_a_workload_that_waits_cannot_beat_the_ideal(topics: Topics, spec: TopicSpec) -> None:
    workload = evolve(WORKLOADS["wait10-key-16"], topic=spec)
    found = measure(workload, topics, 1, lambda _: None)
    assert list(found.failures()) == []
    assert 0 < found.ratios["ideal"] <= 1
    assert found.runs[0].notes["latency_ms"] >= 10
    assert found.runs[0].cpu_s > 0
    assert found.runs[0].max_rss_mb > 10


def test_the_share_of_busy_slots_is_measured_with_slow_records(topics: Topics) -> None:
    spec = TopicSpec(records=2_000, slow_one_in=500)
    workload = evolve(WORKLOADS["skew"], topic=spec, slow_wait_s=0.1)
    found = measure(workload, topics, 1, lambda _: None)
    assert list(found.failures()) == []
    assert 0 < found.ratios["busy"] <= 1
    topics.delete(spec.name)


def test_a_stuck_start_keeps_one_record_open_and_ends_with_nothing_lost(topics: Topics) -> None:
    spec = TopicSpec(records=2_000, value_bytes=1_024)
    workload = evolve(WORKLOADS["stuck-start"], topic=spec, lasts_s=1.0, floors=())
    found = measure(workload, topics, 1, lambda _: None)
    assert list(found.failures()) == []
    assert 0 <= found.ratios["memory"] < 1.5
    assert found.ratios["others"] > 0


def test_dead_letters_go_back_and_kills_on_the_way_lose_none(
    topics: Topics, golden: Golden
) -> None:
    small = TopicSpec(records=40_000, keys=40)
    workload = evolve(WORKLOADS["redrive"], topic=small, kills=1, may_repeat=10_000, floors=())
    said: list[str] = []
    found = measure(workload, topics, 1, said.append)
    assert list(found.failures()) == []
    assert found.runs[0].duplicates == 0
    assert found.records_per_s.median > 0
    golden(said[0].partition(" times: ")[0])


def test_a_filled_topic_is_used_again_and_a_half_filled_one_is_made_anew(
    topics: Topics, spec: TopicSpec
) -> None:
    said: list[str] = []
    name = topics.filled(spec, said.append)
    assert topics.filled(spec, said.append) == name
    assert said == [f"filling {name} with 2,000 records"]
    topics.delete(name)
    topics.make(name)
    topics.filled(spec, said.append)
    assert said[1] == f"{name} is incomplete: deleting it"
    assert topics.log_ends(name) == dict.fromkeys(range(PARTITIONS), 500)


def test_committed_offsets_short_of_the_end_are_noticed(
    topics: Topics, unique_name: Callable[[str], str], spec: TopicSpec
) -> None:
    name = topics.filled(spec, lambda _: None)
    assert not topics.committed_equals_end(name, unique_name("nobody"))


def test_a_record_that_nobody_expected_ends_the_run(topics: Topics, spec: TopicSpec) -> None:
    name = topics.filled(spec, lambda _: None)
    producer = Producer({"bootstrap.servers": topics.bootstrap})
    producer.produce(name, b"one more", partition=0)
    assert producer.flush(30) == 0
    workload = evolve(WORKLOADS["noop-unordered"], topic=spec)
    with pytest.raises(RunError, match="IndexError"):
        children.run(
            "framework",
            bootstrap=topics.bootstrap,
            topic=name,
            group="wc-bench-one-more",
            workload=workload,
            counts=[spec.records // PARTITIONS] * PARTITIONS,
            checked=True,
        )


def test_a_topic_that_cannot_be_made_is_said_in_words(topics: Topics) -> None:
    with pytest.raises(RunError, match="no/name"):
        topics.make("no/name")
