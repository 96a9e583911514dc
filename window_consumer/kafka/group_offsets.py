"""What a group has committed, asked from outside of the group."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from attrs import frozen
from confluent_kafka import Consumer, KafkaException, TopicPartition

from window_consumer.kafka import errors
from window_consumer.model.errors import RunError


@frozen
class Progress:
    """How far a group is in one partition."""

    committed: int
    """Negative where nothing is."""
    metadata: str | None
    """What was committed beside it, see ``core.metadata``."""
    start: int
    """Of the log."""
    end: int
    """Of the log, exclusive."""
    old: int
    """Where what is younger than asked for begins; the end where nothing is."""


def committed_offsets(
    client: Mapping[str, Any], group: str, topic: str, timeout_s: float = 10.0
) -> dict[int, int]:
    """Return the committed offset of each partition; those without one are left out.

    ``client`` are settings of a consumer. Raises a WindowConsumerError in trouble.
    """
    consumer = Consumer({**client, "group.id": group, "enable.auto.commit": False})
    try:
        metadata = consumer.list_topics(topic, timeout=timeout_s).topics[topic]
        if metadata.error is not None:
            raise errors.translate(metadata.error, f"offsets of {group}: {topic}")
        wanted = [TopicPartition(topic, partition) for partition in metadata.partitions]
        found = consumer.committed(wanted, timeout=timeout_s)
    except KafkaException as exception:
        error = errors.cause_of(exception)
        if error is None:
            raise RunError(f"offsets of {group}: {exception}") from exception
        raise errors.translate(error, f"offsets of {group}") from exception
    finally:
        consumer.close()
    for each in found:
        if each.error is not None:
            raise errors.translate(each.error, f"offsets of {group}: {topic}[{each.partition}]")
    return {each.partition: each.offset for each in found if each.offset >= 0}
