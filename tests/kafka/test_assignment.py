"""What a client is told of the partitions that it was assigned."""

from __future__ import annotations

from typing import Any

import pytest
from confluent_kafka import KafkaError
from confluent_kafka import TopicPartition as ClientPartition

from window_consumer.kafka.assignment import Assignment
from window_consumer.model.record import TopicPartition

WAITS, KNOWN = TopicPartition("orders", 0), TopicPartition("orders", 1)
OUT_OF_RANGE = KafkaError(KafkaError.OFFSET_OUT_OF_RANGE)


class Client:
    """Notes what it is told."""

    def __init__(self) -> None:
        self.reported: list[tuple[str, dict[TopicPartition, int]]] = []

    def __getattr__(self, name: str) -> Any:
        def tell(partitions: Any) -> None:
            listed = partitions if isinstance(partitions, list) else [partitions]
            places = {TopicPartition(each.topic, each.partition): each.offset for each in listed}
            self.reported.append((name, places))

        return tell

    def position(self, partitions: list[ClientPartition]) -> list[ClientPartition]:
        """Nothing was read yet."""
        return partitions


class Problem:
    """An error about a partition, as the client returns it."""

    def __init__(self, name: TopicPartition, offset: int | None = None):
        self.topic, self.partition = (lambda: name.topic), (lambda: name.partition)
        self.offset = lambda: offset


def started(*, incremental: bool) -> tuple[Client, Assignment]:
    client = Client()
    assignment = Assignment(client, incremental=incremental)  # type: ignore[arg-type] # as far as it is used
    assignment.take([WAITS, KNOWN])
    assignment.start({WAITS: None, KNOWN: 7})
    return client, assignment


@pytest.mark.parametrize("incremental", [True, False])
def test_the_client_never_has_to_ask_where_a_partition_begins(*, incremental: bool) -> None:
    """Its question may be answered after a seek, and the answer would win."""
    client, assignment = started(incremental=incremental)
    how = "incremental_assign" if incremental else "assign"
    assert client.reported == [(how, {WAITS: 0, KNOWN: 7}), ("pause", {WAITS: -1001})]
    del client.reported[:]
    assignment.seek(WAITS, 4)
    assert client.reported == [("resume", {WAITS: -1001}), ("seek", {WAITS: 4})]


def test_what_is_wrong_with_the_place_of_one_that_waits_is_not_reported() -> None:
    _, assignment = started(incremental=True)
    assignment.record_problem(Problem(WAITS), OUT_OF_RANGE)
    assignment.record_problem(Problem(KNOWN), OUT_OF_RANGE)
    assert assignment.take_problems() == {KNOWN: OUT_OF_RANGE}
    assignment.seek(WAITS, 4)
    assignment.record_problem(Problem(WAITS), OUT_OF_RANGE)
    assert assignment.take_problems() == {WAITS: OUT_OF_RANGE}


def test_what_was_wrong_with_a_place_before_where_it_begins_now_is_not_reported() -> None:
    """The client tells of it late: it had asked before it was told to go elsewhere."""
    _, assignment = started(incremental=True)
    assignment.seek(WAITS, 4)
    assignment.record_problem(Problem(WAITS, 0), OUT_OF_RANGE)
    assignment.record_problem(Problem(KNOWN, 6), OUT_OF_RANGE)
    assert assignment.take_problems() == {}
    assignment.record_problem(Problem(WAITS, 4), OUT_OF_RANGE)
    assignment.record_problem(Problem(KNOWN, 9), OUT_OF_RANGE)
    assert assignment.take_problems() == {WAITS: OUT_OF_RANGE, KNOWN: OUT_OF_RANGE}


def test_one_that_was_given_up_waits_no_more() -> None:
    _, assignment = started(incremental=True)
    assignment.give_up([WAITS])
    assignment.take([WAITS])
    assignment.start({WAITS: 3})
    assignment.record_problem(Problem(WAITS), OUT_OF_RANGE)
    assert assignment.take_problems() == {WAITS: OUT_OF_RANGE}
