"""What Kafka knows of the topics that an audit is about, beside their counts."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final

from attrs import field, frozen

from window_consumer.kafka import settings
from window_consumer.kafka.client_log import ClientLog
from window_consumer.kafka.cluster import Cluster
from window_consumer.model.errors import WindowConsumerError

_PATIENCE_S: Final = 15.0
"""Without these answers nothing is known to be lost: a Kafka that is only slow is waited for."""


@frozen
class Standing:
    """What the counts cannot tell; empty where nobody could be asked."""

    compacted: tuple[str, ...] = ()
    """Topics of which compaction may take what was not read yet."""
    caught_up: tuple[tuple[str, str, int], ...] = ()
    """Group, topic and partition of those that have read all there is."""
    problem: str | None = None
    """Why not everything could be asked."""


def standing(
    places: Iterable[tuple[str, str]], client: Mapping[str, Any], log: ClientLog
) -> Standing:
    """Ask about topics and their groups; a topic without a group has an empty one."""
    try:
        cluster = Cluster(settings.admin_settings(client, "audit"), log)
        cluster.wait_until_there(_PATIENCE_S, lambda _reason, _waited_s: None)
        return _Asked(cluster).about(sorted(set(places)))
    except WindowConsumerError as error:
        return Standing(problem=str(error))


@frozen
class _Asked:
    cluster: Cluster
    compacted: dict[str, bool] = field(factory=dict)

    def about(self, places: Iterable[tuple[str, str]]) -> Standing:
        caught_up, problem = [], None
        for topic, group in places:
            try:
                if topic not in self.compacted:
                    policy = self.cluster.topic_config(topic).get("cleanup.policy", "")
                    self.compacted[topic] = "compact" in policy
                if group:
                    lags = self.cluster.backlogs(group, topic)
                    caught_up += [
                        (group, topic, name.partition) for name, lag in lags.items() if lag == 0
                    ]
            except WindowConsumerError as error:
                problem = str(error)
        compacted = tuple(topic for topic, is_so in self.compacted.items() if is_so)
        return Standing(compacted, tuple(caught_up), problem)
