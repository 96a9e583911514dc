"""How soon a group notices that a member is gone: session and heartbeat, and who has set them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from attrs import frozen

from window_consumer.kafka.settings import group_protocols

SESSION: Final = "group.consumer.session.timeout.ms"
HEARTBEAT: Final = "group.consumer.heartbeat.interval.ms"
_OF_GROUP: Final = {
    SESSION: "consumer.session.timeout.ms",
    HEARTBEAT: "consumer.heartbeat.interval.ms",
}
"""The same as a group's own, which win over the broker's (KIP-848)."""

_BROKERS_DEFAULTS: Final = {SESSION: 45_000, HEARTBEAT: 5_000}
_CLIENTS_DEFAULTS: Final = {"session.timeout.ms": 45_000, "heartbeat.interval.ms": 3_000}
_NOTHING: Final[Mapping[str, str]] = {}


@frozen
class GroupTimes:
    """Seconds, and where each is from."""

    session_s: float
    """So long after a member's last heartbeat it counts as gone."""
    heartbeat_s: float
    """So long until the others hear of it."""
    session_from: str
    heartbeat_from: str


def group_times(
    consumer: Mapping[str, Any],
    *,
    has_consumer_protocol: bool = True,
    broker: Mapping[str, str] = _NOTHING,
    group: Mapping[str, str] = _NOTHING,
) -> GroupTimes:
    """Return the times of a worker's group.

    ``consumer`` are the user's properties. In the classic protocol they are the client's; in the
    consumer protocol the group's own settings decide, then the broker's, then Kafka's defaults:
    what the cluster was not asked for, or did not tell, counts as Kafka's default.
    """
    protocol = group_protocols(consumer)[0]
    if protocol == "classic" or not has_consumer_protocol:
        session, heartbeat = (
            _chosen(((consumer, key, "kafka."),), default)
            for key, default in _CLIENTS_DEFAULTS.items()
        )
    else:
        session, heartbeat = (
            _chosen(
                ((group, _OF_GROUP[key], "the group's "), (broker, key, "the broker's ")), default
            )
            for key, default in _BROKERS_DEFAULTS.items()
        )
    return GroupTimes(session[0], heartbeat[0], session[1], heartbeat[1])


def _chosen(
    given: tuple[tuple[Mapping[str, Any], str, str], ...], default_ms: int
) -> tuple[float, str]:
    for settings, key, whose in given:
        if key in settings:
            return int(settings[key]) / 1000, f"{whose}{key}"
    return default_ms / 1000, "Kafka's default"
