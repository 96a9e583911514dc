from __future__ import annotations

from typing import Any

from confluent_kafka import Message
from hypothesis import given
from hypothesis import strategies as st

from window_consumer.kafka.batches import Names
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
