"""What ``once`` promises, for threads, coroutines and child processes, records and batches."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka.admin import AdminClient, NewTopic

from tests import topics
from tests.conftest import MakeTopic
from tests.database.once_workers import KINDS, Kind, OnceBench
from tests.waiting import wait_until
from window_consumer import Running
from window_consumer.kafka.embedded import EmbeddedBroker
from window_consumer.model.log_events import LogEvent
from window_consumer.testing.real_kafka import RealKafka

BenchOf = Callable[..., OnceBench]
IN_CHILDREN = [kind for kind in KINDS if kind.pool == "processes"]
BATCHES = [kind for kind in KINDS if kind.is_batch]
CLASSIC = {"group.protocol": "classic"}


@pytest.fixture(params=KINDS, ids=str)
def kind(request: pytest.FixtureRequest) -> Kind:
    """Each kind of worker in turn."""
    kind: Kind = request.param
    return kind


@pytest.fixture
def bench_of(embedded: EmbeddedBroker, tmp_path: Path) -> Iterator[BenchOf]:
    """``bench_of(kind, lock_timeout="100ms")`` with SQLite on the embedded broker, by default."""
    embedded.create_topic("orders", 1)
    made: list[OnceBench] = []

    def make(kind: Kind, url: str = "", bootstrap: str = "", **more: Any) -> OnceBench:
        url = url or f"sqlite:///{tmp_path / 'shop.db'}"
        bench = OnceBench(bootstrap or embedded.bootstrap, tmp_path, url, kind, **more)
        made.append(bench)
        return bench

    yield make
    for bench in made:
        bench.close()


def test_records_that_are_delivered_again_have_one_effect_and_are_counted(
    bench_of: BenchOf, kind: Kind
) -> None:
    bench = bench_of(kind)
    bench.fill("a", "b", "c")
    for times in range(2):
        with bench.start(concurrency=2) as running:
            wait_until(lambda running=running: running.counters["place"].finished == 3)  # type: ignore[misc] # of a loop
            did = running.counters["place"]
        expected = (0, 3) if times else (3, 0)
        assert (did.processed, did.deduplicated, did.skipped, did.retried) == (*expected, 0, 0)
        bench.deliver_again()
    assert bench.placed == bench.results == ["a", "b", "c"]
    assert {attempt for call in bench.calls for _, attempt in call} == {1}


def test_records_of_a_recreated_topic_run_although_their_ids_are_those_of_the_former(
    bench_of: BenchOf, kind: Kind, embedded: EmbeddedBroker
) -> None:
    bench = bench_of(kind)
    for _ in range(2):
        bench.fill("a", "b")
        with bench.start(concurrency=2) as running:
            wait_until(lambda running=running: running.counters["place"].finished == 2)  # type: ignore[misc] # of a loop
            assert running.counters["place"].processed == 2
        embedded.delete_topic("orders")
        embedded.create_topic("orders", 1)
    rows = bench.rows(bench.once.table)
    assert {row.record_id for row in rows} == {"orders/0/0", "orders/0/1"}
    assert len({row.origin for row in rows}) == 2
    assert bench.placed == ["a", "a", "b", "b"]


def test_a_failed_call_leaves_nothing_and_the_next_one_knows_its_number(
    bench_of: BenchOf, kind: Kind
) -> None:
    bench = bench_of(kind)
    bench.fill("a fails 2", "b fails", "c")
    retry = {"attempts": 3, "backoff": "10ms..10ms", "on_failure": "overtake"}
    with bench.start(concurrency=2, retry=retry) as running:
        wait_until(lambda: running.counters["place"].finished == 3)
        did = running.counters["place"]
    assert (did.processed, did.deduplicated, did.dead_lettered) == (2, 0, 1)
    assert bench.attempts_of("a fails 2") == bench.attempts_of("b fails") == [1, 2, 3]
    assert bench.attempts_of("c") == [1]
    assert bench.placed == ["a", "c"]
    assert bench.results == ["a fails 2", "c"]
    assert {row.record_id for row in bench.rows(bench.once.table)} == {"orders/0/0", "orders/0/2"}


def test_who_waits_for_another_call_with_its_id_makes_no_attempt(
    bench_of: BenchOf, kind: Kind, database: str, caplog: pytest.LogCaptureFixture
) -> None:
    bench = bench_of(kind, database, lock_timeout="100ms")
    retry = {"attempts": 1, "on_failure": "overtake"}
    batch = {"batch": {"max_records": 1}} if kind.is_batch else {}
    with bench.start(concurrency=2, ordering="unordered", retry=retry, **batch) as running:
        bench.fill("a waits fails 1", ids=("1",))
        wait_until(lambda: bench.calls)
        bench.fill("second", ids=("1",))
        wait_until(lambda: LogEvent.ONCE_WAITS in [getattr(r, "event", "") for r in caplog.records])
        assert running.counters["place"].finished == 0
        bench.let_go()
        wait_until(lambda: running.counters["place"].finished == 2)
        did = running.counters["place"]
    assert (did.processed, did.deduplicated, did.dead_lettered) == (1, 0, 1)
    assert bench.calls == [[("a waits fails 1", 1)], [("second", 1)]]
    assert bench.placed == ["second"]


def test_a_copy_of_a_level_and_its_source_are_one_record(bench_of: BenchOf, kind: Kind) -> None:
    bench = bench_of(kind)
    bench.fill("a fails 1")
    retry = {"attempts": 1, "levels": ["100ms"], "on_failure": "overtake"}
    with bench.start(retry=retry, concurrency=2) as running:
        wait_until(lambda: running.counters["place"].processed == 1)
    assert bench.attempts_of("a fails 1") == [1, 2]
    bench.deliver_again()
    with bench.start(retry=retry, concurrency=2) as running:
        wait_until(lambda: running.counters["place"].finished == 1)
        assert running.counters["place"].deduplicated == 1
    (row,) = bench.rows(bench.once.table)
    assert (row.record_id, row.origin.partition(":")[0]) == ("orders/0/0", "orders")
    assert row.origin.partition(":")[2] != f"{0:016x}"
    assert bench.placed == ["a"]
    assert len(bench.calls) == 2


def test_a_duplicate_is_not_called_and_a_bad_record_takes_no_other_along(
    bench_of: BenchOf, kind: Kind
) -> None:
    bench = bench_of(kind)
    bench.fill("a", "b fails", "a", "c", ids=("1", "2", "1", "3"))
    batch = {"max_records": 4, "min_records": 4, "max_wait": "10s"}
    more = {"batch": batch} if kind.is_batch else {}
    retry = {"attempts": 1, "on_failure": "overtake"}
    with bench.start(concurrency=1, retry=retry, **more) as running:
        wait_until(lambda: running.counters["place"].finished == 4)
        did = running.counters["place"]
    assert (did.processed, did.deduplicated, did.dead_lettered) == (2, 1, 1)
    assert bench.placed == bench.results == ["a", "c"]
    if kind.is_batch:
        assert bench.calls == [[("a", 1), ("b fails", 1), ("c", 1)], [("a", 1), ("c", 1)]]


def test_ids_come_from_the_record_where_by_says_so(bench_of: BenchOf, kind: Kind) -> None:
    bench = bench_of(kind, by_hash=True)
    bench.fill("a #1", "b #1", "c")
    with bench.start(concurrency=1, retry={"on_failure": "overtake"}) as running:
        wait_until(lambda: running.counters["place"].finished == 3)
        did = running.counters["place"]
    assert (did.processed, did.deduplicated, did.dead_by) == (1, 1, {"FATAL": 1})
    assert bench.placed == ["a"]


@pytest.mark.parametrize("kind", IN_CHILDREN, ids=str)
def test_a_child_that_is_killed_in_a_call_leaves_nothing_of_it(
    bench_of: BenchOf, kind: Kind, database: str
) -> None:
    bench = bench_of(kind, database)
    bench.fill("a dies 1", "b")
    retry = {"attempts": 2, "backoff": "10ms..10ms"}
    with bench.start(concurrency=1, retry=retry) as running:
        wait_until(lambda: running.counters["place"].finished == 2)
        did = running.counters["place"]
    assert (did.processed, did.deduplicated, did.dead_lettered) == (2, 0, 0)
    assert bench.attempts_of("a dies 1") == [1, 2]
    assert bench.placed == ["a", "b"]


@pytest.mark.parametrize("kind", IN_CHILDREN, ids=str)
def test_records_of_a_topic_that_is_recreated_while_children_run_have_their_effects(
    bench_of: BenchOf, kafka: RealKafka, make_topic: MakeTopic, database: str, kind: Kind
) -> None:
    """The ids of the new records, by offset, are those of the former ones."""
    topic = make_topic("orders")
    bench = bench_of(kind, database, kafka.bootstrap, topic=topic)
    texts = [f"{number}" for number in range(10)]
    kafka_settings = {"topic.metadata.refresh.interval.ms": 1000}
    with bench.start(concurrency=2, kafka=kafka_settings) as running:
        bench.fill(*texts)
        wait_until(lambda: running.counters["place"].finished == 10)
        wait_until(lambda: running.counters["place"].commits)
        admin = AdminClient({"bootstrap.servers": kafka.bootstrap})
        topics.make_anew(admin, NewTopic(topic, num_partitions=1, replication_factor=1))
        bench.fill(*texts)
        wait_until(lambda: running.counters["place"].finished == 20)
        did = running.counters["place"]
    assert (did.processed, did.deduplicated) == (20, 0)
    assert bench.placed == sorted(texts * 2)
    rows = bench.rows(bench.once.table)
    assert {row.record_id for row in rows} == {f"{topic}/0/{offset}" for offset in range(10)}
    assert len({row.origin for row in rows}) == 2


def share_all(members: Sequence[Running], partitions: int) -> bool:
    """Return whether each member has some of the partitions, and all have an owner."""
    owned = [len(each.snapshots()["place"].partitions) for each in members]
    return all(owned) and sum(owned) == partitions


def test_a_copy_in_another_member_has_the_id_of_its_source(
    bench_of: BenchOf, kafka: RealKafka, make_topic: MakeTopic, database: str
) -> None:
    """Some assignors give a copy's partition to a member that has never had its source's.

    This one does it for sure: 0, 2 and the level's 1 are one member's, the rest the other's.
    """
    count = 3
    topic = make_topic("orders", count)
    records = Kind("threads", is_async=False, is_batch=False)
    members = [bench_of(records, database, kafka.bootstrap, topic=topic) for _ in range(2)]
    worker = {
        "ordering": "unordered",
        "concurrency": 4,
        "retry": {"attempts": 1, "levels": ["500ms"], "on_failure": "overtake"},
        "breaker": {"enabled": False},
        "kafka": {"consumer": {"partition.assignment.strategy": "roundrobin", **CLASSIC}},
    }
    texts = [f"{number} stumbles" for number in range(2 * count)]
    with members[0].start(**worker) as first, members[1].start(**worker) as second:
        both = [first, second]
        wait_until(lambda: share_all(both, 2 * count))  # of the source and the level
        members[0].fill(*texts, partitions=count)
        wait_until(lambda: sum(each.counters["place"].processed for each in both) == len(texts))
    apart = [text for text in texts for each in members if each.attempts_of(text) == [1]]
    assert apart == texts
    members[0].deliver_again(count)
    members[0].let_go()
    with members[0].start(**worker) as running:
        wait_until(lambda: running.counters["place"].finished == len(texts))
        assert running.counters["place"].deduplicated == len(texts)
    assert members[0].placed == sorted(str(number) for number in range(2 * count))
