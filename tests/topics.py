"""Topics of a real Kafka, made and changed so that its broker knows of it when a call returns.

The controller answers first; the broker that answers clients hears of it a moment later.
"""

from __future__ import annotations

from functools import partial

from confluent_kafka import KafkaException, TopicCollection
from confluent_kafka.admin import AdminClient, NewPartitions, NewTopic

from tests.waiting import wait_until

DEADLINE_S = 60.0


def make(admin: AdminClient, *new: NewTopic) -> None:
    """Make topics, and return when each of their partitions has a leader that clients can find."""
    for future in admin.create_topics(list(new)).values():
        future.result(DEADLINE_S)
    for topic in new:
        wait_until(partial(_is_led, admin, topic), DEADLINE_S, f"{topic.topic} is there")


def _is_led(admin: AdminClient, topic: NewTopic) -> bool:
    return led(admin, topic.topic) == topic.num_partitions


def delete(admin: AdminClient, name: str) -> None:
    """Delete a topic, and return when clients are told of it no more."""
    admin.delete_topics([name])[name].result(DEADLINE_S)
    wait_until(lambda: led(admin, name) is None, DEADLINE_S, f"{name} is gone")


def make_anew(admin: AdminClient, new: NewTopic) -> None:
    """Delete a topic and make it again at once; return when clients are told of the new one."""
    before = identity(admin, new.topic)
    admin.delete_topics([new.topic])[new.topic].result(DEADLINE_S)
    make(admin, new)
    wait_until(
        lambda: identity(admin, new.topic) not in (None, before),
        DEADLINE_S,
        f"{new.topic} is the new one",
    )


def widen(admin: AdminClient, name: str, partitions: int) -> None:
    """Add partitions, and return when each of them has a leader that clients can find."""
    admin.create_partitions([NewPartitions(name, partitions)])[name].result(DEADLINE_S)
    wait_until(lambda: led(admin, name) == partitions, DEADLINE_S, f"{name} is widened")


def led(admin: AdminClient, name: str) -> int | None:
    """Return how many partitions of a topic have a leader, None where there is no such topic."""
    found = admin.list_topics(name, timeout=DEADLINE_S).topics[name]
    if found.error is not None:
        return None
    return sum(each.error is None and each.leader >= 0 for each in found.partitions.values())


def identity(admin: AdminClient, name: str) -> str | None:
    """Return a topic's id, None where there is no such topic."""
    answer = admin.describe_topics(TopicCollection([name]))[name]
    try:
        return str(answer.result(DEADLINE_S).topic_id)
    except KafkaException:
        return None
