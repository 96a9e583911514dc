"""The ids of the cluster and of topics, which reveal whether a topic was recreated."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final

from window_consumer.kafka import settings
from window_consumer.kafka.client_log import ClientLog
from window_consumer.kafka.cluster import Cluster
from window_consumer.model.errors import MissingTopicError

DEADLINE_S: Final = 15.0


def topic_id(
    name: str, client: Mapping[str, Any], log: ClientLog, deadline_s: float = DEADLINE_S
) -> str | None:
    """Return a topic's id, or None if the cluster has no ids.

    Raises MissingTopicError, BrokerUnavailableError after ``deadline_s``, or another
    WindowConsumerError.
    """
    cluster = _reached(client, log, deadline_s)
    found = cluster.topics([name]).get(name)
    if found is None:
        raise MissingTopicError(
            f"the cluster at {cluster.bootstrap} has no topic {name}, which pipeline.yaml names:"
            " workers with a section `trace:` or `audit:` create theirs when they start"
        )
    return found.topic_id


def topic_ids(
    pattern: str, client: Mapping[str, Any], log: ClientLog, deadline_s: float = DEADLINE_S
) -> Mapping[str, str | None]:
    """Return the topics whose whole names match a pattern, with ids. Raises like ``topic_id``."""
    cluster = _reached(client, log, deadline_s)
    names = [name for name in cluster.topic_names() if re.fullmatch(pattern, name)]
    return {name: found.topic_id for name, found in cluster.topics(names).items()}


def cluster_id(
    client: Mapping[str, Any], log: ClientLog, deadline_s: float = DEADLINE_S
) -> str | None:
    """Return the cluster's id, or None if it reports none. Raises like ``topic_id``."""
    return _reached(client, log, deadline_s).cluster_id()


def _reached(client: Mapping[str, Any], log: ClientLog, deadline_s: float) -> Cluster:
    cluster = Cluster(settings.admin_settings(client, "pipeline"), log)
    cluster.wait_until_there(deadline_s, lambda _reason, _waited_s: None)
    return cluster
