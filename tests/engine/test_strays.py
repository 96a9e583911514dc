"""Copies that lie in another partition than the records of their lane are called in their own."""

from __future__ import annotations

import pytest

from tests.engine.laddered import ENTRY, RETRIED, Laddered
from tests.engine.support import ORDERS
from window_consumer.engine.decisions import Assigned
from window_consumer.engine.retry.failed_record import FailedRecord
from window_consumer.model.errors import PublishFailedError
from window_consumer.model.record import TopicPartition

HERE, ALSO_HERE = TopicPartition(RETRIED.topic, 3), TopicPartition(ENTRY.topic, 3)
WIDE = 4


def driven(
    name: TopicPartition = HERE, *, ordering: str = "key", partitions: int = WIDE
) -> Laddered:
    """Return an Engine that owns a partition of copies whose source has only one partition."""
    found = Laddered(owned=[ORDERS], ordering=ordering)
    found.engine.on_topics({"orders": 1, name.topic: partitions}, found.now)
    given = Assigned(name, 0, committed=(0, ""), partitions=partitions)
    found.engine.on_assigned([given], found.now)
    return found


def home_going(found: Laddered) -> FailedRecord:
    failed = found.published_one()
    assert failed.forward is not None
    return failed


@pytest.mark.parametrize("name", [HERE, ALSO_HERE], ids=["level", "entry"])
@pytest.mark.parametrize("ordering", ["key", "partition"])
def test_a_stray_moves_as_it_is_to_the_partition_of_its_sources_number(
    name: TopicPartition, ordering: str
) -> None:
    found = driven(name, ordering=ordering)
    message = found.copy(5, due_in=0.0)
    found.deliver(message, name=name)
    stray = home_going(found)
    assert stray.forward is not None
    copy = stray.forward.copy
    assert (copy.topic, copy.partition) == (name.topic, 0)
    assert (copy.key, copy.value, list(copy.headers)) == (b"k", message.value(), message.headers())
    assert found.out == []
    found.copied(stray)
    assert found.engine.partitions[name].window.next_offset == 6
    assert found.engine.counters.moved == 0


def test_a_stray_waits_until_it_is_due() -> None:
    found = driven()
    found.deliver(found.copy(5, due_in=2.0), name=HERE)
    assert found.published(1.0) == []
    found.now += 1.5
    assert home_going(found).message.offset() == 5


def test_what_lies_where_it_belongs_is_called_beside_strays() -> None:
    found = Laddered(owned=[ORDERS], ordering="key")
    given = Assigned(RETRIED, 0, committed=(0, ""), partitions=WIDE)
    found.engine.on_assigned([given], found.now)
    found.deliver(found.copy(5, due_in=0.0), name=RETRIED)
    found.tick()
    assert found.running_offsets == [5]


def test_without_an_order_a_copy_is_called_where_it_lies() -> None:
    found = driven(ordering="unordered")
    found.deliver(found.copy(5, due_in=0.0), name=HERE)
    found.tick()
    assert found.running_offsets == [5]


def test_a_stray_whose_move_fails_is_moved_again() -> None:
    found = driven()
    found.deliver(found.copy(5, due_in=0.0), name=HERE)
    for error in (PublishFailedError("no"), PublishFailedError("large", too_large=True)):
        found.copied(home_going(found), error)
        found.now += 60.0
        assert found.engine.partitions[HERE].window.next_offset == 5
    found.copied(home_going(found))
    assert found.engine.partitions[HERE].window.next_offset == 6


def test_a_stray_of_a_partition_that_is_lost_changes_nothing() -> None:
    found = driven()
    found.deliver(found.copy(5, due_in=0.0), name=HERE)
    found.engine.on_lost([HERE], found.now)
    assert found.published() == []
