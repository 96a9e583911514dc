"""What a Source promises that reads all partitions of its topics, without a group."""

from __future__ import annotations

import pytest

from tests.conformance.conftest import Full
from tests.conformance.reader import Reader
from tests.conformance.stages import Stage
from window_consumer.model.record import TopicPartition


class ReaderOfAll(Reader):
    """A reader that begins at the first record of each log."""

    def __init__(self, stage: Stage):
        super().__init__(stage.source_of_all())
        self.begin = lambda names: dict.fromkeys(names, 0)


def test_every_reader_gets_every_record(stage: Stage) -> None:
    topic = stage.topic(partitions=2)
    names = [TopicPartition(topic, number) for number in range(2)]
    readers = [ReaderOfAll(stage).join(topic) for _ in range(2)]
    for name in names:
        stage.write(topic, b"1", b"2", partition=name.partition)
    for reader in readers:
        assert [reader.read(name, 2) for name in names] == [[0, 1], [0, 1]]
        assert reader.reported("assigned") == [frozenset(names)]
        assert reader.reported("revoked") == []


def test_a_topic_without_records_is_reported_too(stage: Stage) -> None:
    reader = ReaderOfAll(stage).join(stage.topic(partitions=3))
    assert len(reader.held) == 3


def test_added_partitions_are_assigned_beside_the_others(full: Full) -> None:
    topic = full.topic(partitions=1)
    old, new = TopicPartition(topic, 0), TopicPartition(topic, 1)
    reader = ReaderOfAll(full).join(topic)
    full.add_partitions(topic, 2)
    full.write(topic, b"1", partition=1)
    full.write(topic, b"1")
    reader.source.widen({topic: 2})
    assert (reader.read(new, 1), reader.read(old, 1)) == ([0], [0])
    assert reader.reported("assigned") == [frozenset([old]), frozenset([new])]


def test_a_topic_that_is_dropped_is_given_up(stage: Stage) -> None:
    kept, dropped = stage.topic(), stage.topic()
    reader = ReaderOfAll(stage).join(kept, dropped)
    reader.source.subscribe([kept], reader)
    reader.until(lambda: reader.held == {TopicPartition(kept, 0)})
    stage.write(dropped, b"late")
    stage.write(kept, b"1")
    reader.read(TopicPartition(kept, 0), 1)
    assert TopicPartition(dropped, 0) not in reader.records


def test_a_paused_partition_resumes_where_it_was(stage: Stage) -> None:
    topic = stage.topic()
    name = TopicPartition(topic, 0)
    reader = ReaderOfAll(stage).join(topic)
    stage.write(topic, b"1", b"2")
    reader.read(name, 2)
    reader.source.pause([name])
    stage.write(topic, b"3")
    for _ in range(5):
        reader.turn()
    reader.source.seek(name, 2)
    assert reader.read(name, 3) == [0, 1, 2]


@pytest.mark.parametrize(("age_ms", "expected"), [(10**9, 0), (-(10**9), 3)])
def test_offsets_are_found_by_time(stage: Stage, age_ms: int, expected: int) -> None:
    topic = stage.topic()
    name = TopicPartition(topic, 0)
    reader = ReaderOfAll(stage).join(topic)
    stage.write(topic, b"1", b"2", b"3")
    _, written_ms = stage.read(topic)[0].timestamp()
    found = reader.source.offsets_at({name: (0, 3)}, written_ms - age_ms, 20.0)
    assert found == {name: expected}


def test_an_empty_log_begins_at_its_end_whatever_the_time(stage: Stage) -> None:
    name = TopicPartition(stage.topic(), 0)
    reader = ReaderOfAll(stage).join(name.topic)
    assert reader.source.offsets_at({name: (0, 0)}, 1, 20.0) == {name: 0}
