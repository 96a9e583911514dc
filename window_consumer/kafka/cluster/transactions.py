"""Checks whether the cluster can begin transactions at all."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from window_consumer.kafka.cluster import Cluster
from window_consumer.kafka.cluster.topics import Topic
from window_consumer.model.errors import NotPermittedError

_STATE_TOPIC: Final = "__transaction_state"
_FACTOR: Final = "transaction.state.log.replication.factor"
_MIN_ISR: Final = "transaction.state.log.min.isr"


def find_obstacle(cluster: Cluster) -> str | None:
    """Return why no transaction can begin on this cluster; None if no reason is known.

    None is known, for example, without permission to describe the topic of transactions or the
    brokers' settings.
    """
    if cluster.is_embedded:
        return (
            "the embedded broker has no transactions: remove delivery, or use a real Kafka; the"
            " test kit also has them"
        )
    try:
        topic = cluster.topics([_STATE_TOPIC]).get(_STATE_TOPIC)
    except NotPermittedError:
        return None
    if topic is not None:
        return obstacle_of_topic(topic, cluster.topic_config(_STATE_TOPIC))
    return obstacle_of_new_topic(cluster.broker_count(), cluster.broker_config())


def obstacle_of_topic(topic: Topic, settings: Mapping[str, str]) -> str | None:
    """Return why the topic of transactions cannot be written."""
    least = int(settings.get("min.insync.replicas", 0))
    if topic.replication >= least:
        return None
    return (
        f"its topic {_STATE_TOPIC} has the replication factor {topic.replication}, which is below"
        f" its min.insync.replicas ({least}): add replicas, or lower the minimum"
    )


def obstacle_of_new_topic(brokers: int, settings: Mapping[str, str]) -> str | None:
    """Return why the first transaction cannot create its topic, or not write it."""
    factor, least = int(settings.get(_FACTOR, 0)), int(settings.get(_MIN_ISR, 0))
    if brokers < factor:
        return (
            f"its topic {_STATE_TOPIC} needs {factor} brokers ({_FACTOR}), but there are {brokers}:"
            f" start the others, or lower {_FACTOR} and {_MIN_ISR} on the brokers"
        )
    if factor < least:
        return (
            f"its {_FACTOR} is {factor}, below {_MIN_ISR} ({least}): correct one of the two on the"
            " brokers"
        )
    return None
