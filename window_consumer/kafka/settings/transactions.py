"""The settings of the producer that writes a worker's transactions, and its transactional.id."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final

from window_consumer.kafka.settings import Settings, producer_settings

TIMEOUT_MS: Final = 10_000
"""After a crash, readers and the next owner of a partition wait this long, unless a process with
the same id starts earlier. Flushing one interval's records takes milliseconds."""

_MISSING_MS: Final = 3_000
"""How long a topic may be unknown: a missing topic delays the whole transaction."""

_DRAWN: Final = re.compile(r"[0-9a-f]{12}|.+-[0-9a-z]{6,10}-[0-9a-z]{5}")
"""Generated host names: of Docker, and of Kubernetes for the pods of a Deployment."""


def transaction_settings(user: Mapping[str, Any], worker: str, transactional_id: str) -> Settings:
    """Return the settings of a transactional producer; the user's override our defaults."""
    ours: Settings = {
        "transaction.timeout.ms": TIMEOUT_MS,
        "topic.metadata.propagation.max.ms": _MISSING_MS,
    }
    settings = producer_settings({**ours, **user}, worker)
    return {**settings, "transactional.id": transactional_id}


def transactional_id(
    group: str, worker: str, consumer: Mapping[str, Any], host: str, process: str
) -> str:
    """Return the id of one process of a worker, which stays the same after a restart.

    ``host`` is the name of the machine or pod, ``process`` the number of the process on it.
    """
    member = consumer.get("group.instance.id") or host
    return f"{group}-{worker}-{member}-{process or 1}"


def is_drawn(consumer: Mapping[str, Any], host: str) -> bool:
    """Return whether the id contains a host name that changes with a restart."""
    return "group.instance.id" not in consumer and _DRAWN.fullmatch(host) is not None
