"""How soon a group notices a lost member: session and heartbeat, and their sources."""

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
"""A group's own settings, which take precedence over the broker's (KIP-848)."""

_BROKERS_DEFAULTS: Final = {SESSION: 45_000, HEARTBEAT: 5_000}
_CLIENTS_DEFAULTS: Final = {"session.timeout.ms": 45_000, "heartbeat.interval.ms": 3_000}
_NOTHING: Final[Mapping[str, str]] = {}


@frozen
class GroupTimes:
    """The times in seconds, and the source of each."""

    session_s: float
    """How long after its last heartbeat a member counts as gone."""
    heartbeat_s: float
    """How long until the other members learn of it."""
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

    ``consumer`` are the user's properties. In the classic protocol, the client's settings apply. In
    the consumer protocol, the group's own settings apply, then the broker's, then Kafka's defaults;
    those also stand in for settings that the cluster did not report.
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
