"""Requirements of built-in workers beyond those of all workers.

Features add these workers: users choose neither the names of their topics nor their ladder. All
members of a group must have the same levels, and the source must keep its records.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from hashlib import sha256
from typing import Any, Final

from window_consumer.config import WorkerConfig, format_duration
from window_consumer.kafka.cluster.topics import ConsumerGroup
from window_consumer.model.errors import ConfigError

DELAY: Final = "delay"
"""The worker of the delay service, and its section."""

_CLIENT_ID: Final = "client.id"

_DIGITS: Final = 8
"""Characters of the levels' hash: enough to tell settings apart, and the id stays short."""

_LEVELS: Final = re.compile(rf".*-levels-([0-9a-f]{{{_DIGITS}}})", re.DOTALL)


def with_levels(worker: WorkerConfig, consumer: Mapping[str, Any]) -> dict[str, Any]:
    """Return consumer properties with a built-in worker's levels in the client id.

    This shows them to other members of the group. Other workers' properties are unchanged.
    """
    if worker.own_topics is None:
        return dict(consumer)
    name = consumer.get(_CLIENT_ID, f"wc-{worker.name}")
    return {**consumer, _CLIENT_ID: f"{name}-levels-{_hash_of(worker)}"}


def _hash_of(worker: WorkerConfig) -> str:
    levels = ",".join(map(format_duration, worker.retry.levels))
    return sha256(levels.encode()).hexdigest()[:_DIGITS]


def check_levels(worker: WorkerConfig, group: ConsumerGroup, where: str) -> None:
    """Raise ConfigError, which names them, if members of the group have other levels.

    A member would wait for the partitions of levels that another one does not read. Members whose
    client id shows no levels count as having the same. ``where`` is for the message.
    """
    if worker.own_topics is None:
        return
    ours = _hash_of(worker)
    others = []
    for member in group.listed:
        found = _LEVELS.fullmatch(member.client_id)
        if found is not None and found[1] != ours:
            others.append(str(member))
    if others:
        raise ConfigError(
            f"{where}: workers.{worker.name}: members of the group {worker.group} have other levels"
            f" than this one, which has {', '.join(map(format_duration, worker.retry.levels))}:"
            f" {', '.join(others)}: give all members the same levels; to change them, stop all"
            " members first (one that was killed, or has a group.instance.id, counts until its"
            " session times out)"
        )


def check_source(worker: WorkerConfig, topic: str, settings: Mapping[str, str], where: str) -> None:
    """Raise ConfigError if a topic is compacted, which deletes records that are still needed.

    ``settings`` are those of the topic; an unknown topic passes.
    """
    if "compact" in settings.get("cleanup.policy", ""):
        raise ConfigError(
            f"{where}: workers.{worker.name}: {topic} is compacted: Kafka would keep only the"
            " newest record of each key and never deliver the others: set its cleanup.policy to"
            " delete, or choose another topic"
        )
