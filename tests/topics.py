"""Creates and changes topics of a real Kafka; calls return once its broker knows.

The controller answers first; the broker that serves clients learns of the change a moment later.
"""

from __future__ import annotations

from functools import partial

from confluent_kafka import KafkaException, TopicCollection
from confluent_kafka.admin import AdminClient, NewPartitions, NewTopic

from tests.waiting import wait_until

DEADLINE_S = 60.0


def make(admin: AdminClient, *new: NewTopic) -> None:
    """Create topics, and return when each partition has a leader that clients can find."""
    for future in admin.create_topics(list(new)).values():
        future.result(DEADLINE_S)
    for topic in new:
        wait_until(partial(_is_led, admin, topic), DEADLINE_S, f"{topic.topic} is there")


def _is_led(admin: AdminClient, topic: NewTopic) -> bool:
    return led(admin, topic.topic) == topic.num_partitions


def delete(admin: AdminClient, name: str) -> None:
    """Delete a topic, and return when clients no longer see it."""
    admin.delete_topics([name])[name].result(DEADLINE_S)
    wait_until(lambda: led(admin, name) is None, DEADLINE_S, f"{name} is gone")


def make_anew(admin: AdminClient, new: NewTopic) -> None:
    """Delete a topic and create it again at once; return when clients see the new one."""
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
    """Return how many partitions of a topic have a leader; None if there is no such topic."""
    found = admin.list_topics(name, timeout=DEADLINE_S).topics[name]
    if found.error is not None:
        return None
    return sum(each.error is None and each.leader >= 0 for each in found.partitions.values())


def identity(admin: AdminClient, name: str) -> str | None:
    """Return a topic's id; None if there is no such topic."""
    answer = admin.describe_topics(TopicCollection([name]))[name]
    try:
        return str(answer.result(DEADLINE_S).topic_id)
    except KafkaException:
        return None
