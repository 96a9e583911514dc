from __future__ import annotations

from typing import Any

from confluent_kafka import Message
from hypothesis import given, settings
from hypothesis import strategies as st

from window_consumer.kafka.batches import Names, _split
from window_consumer.model.protocols import Batch
from window_consumer.model.record import TopicPartition

places = st.lists(st.tuples(st.sampled_from(["a", "b"]), st.integers(0, 3)), max_size=40)


def messages(where: list[tuple[str, int]]) -> list[Any]:
    return [
        Message(topic=topic, partition=partition, offset=offset, value=b"v" * offset)
        for offset, (topic, partition) in enumerate(where)
    ]


def offsets_by_place(where: list[tuple[str, int]]) -> dict[tuple[str, int], list[int]]:
    found: dict[tuple[str, int], list[int]] = {}
    for offset, place in enumerate(where):
        found.setdefault(place, []).append(offset)
    return found


def gathered(where: list[tuple[str, int]], topics: list[str]) -> dict[Any, list[int]]:
    """Add them in two chunks."""
    found: dict[TopicPartition, Batch] = {}
    names = Names()
    all_of_them = messages(where)
    for chunk in all_of_them[:15], all_of_them[15:]:
        names.add(found, chunk, topics)
    for name, batch in found.items():
        assert batch.name == name
        assert batch.size == sum(map(len, batch.messages))
    return {tuple(name): [m.offset() or 0 for m in each.messages] for name, each in found.items()}


@given(places)
def test_each_record_is_in_the_run_of_its_partition_in_the_order_it_came(
    where: list[tuple[str, int]],
) -> None:
    assert gathered(where, ["a", "b"]) == offsets_by_place(where)


@given(st.lists(st.integers(0, 3), min_size=1, max_size=40))
def test_the_records_of_one_topic_are_split_by_partition_alone(partitions: list[int]) -> None:
    where = [("a", partition) for partition in partitions]
    assert gathered(where, ["a"]) == offsets_by_place(where)


@settings(max_examples=30)
@given(
    st.lists(st.tuples(st.integers(0, 2), st.sampled_from([1, 2, 255, 256, 257, 1300])), max_size=6)
)
def test_runs_are_found_whole_however_long_they_are(runs: list[tuple[int, int]]) -> None:
    keys = [partition for partition, length in runs for _ in range(length)]
    batch: list[Any] = list(range(len(keys)))  # records are only passed on
    found: dict[int, list[Any]] = {}
    pieces = 0
    for key, run in _split(batch, keys):
        found.setdefault(key, []).extend(run)
        pieces += 1
    assert found == {key: [i for i, each in enumerate(keys) if each == key] for key in set(keys)}
    assert pieces <= len(runs)
