"""Session and heartbeat of a group: who has set them, and what counts where nobody tells."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from tests.golden_texts import Golden
from window_consumer.app.limits.group_times import HEARTBEAT, SESSION, group_times

BROKER = {SESSION: "30000", HEARTBEAT: "2000"}
GROUP = {"consumer.session.timeout.ms": "12000"}
CLASSIC = {"group.protocol": "classic"}


@pytest.mark.parametrize(
    ("consumer", "cluster", "expected"),
    [
        ({}, {}, (45, 5)),
        ({}, {"broker": BROKER}, (30, 2)),
        ({}, {"broker": BROKER, "group": GROUP}, (12, 2)),
        ({}, {"broker": BROKER, "group": GROUP, "has_consumer_protocol": False}, (45, 3)),
        (CLASSIC, {"broker": BROKER, "group": GROUP}, (45, 3)),
        ({**CLASSIC, "session.timeout.ms": 9000, "heartbeat.interval.ms": "1000"}, {}, (9, 1)),
    ],
)
def test_the_nearest_setting_that_is_known_counts(
    consumer: Mapping[str, Any], cluster: Mapping[str, Any], expected: tuple[float, float]
) -> None:
    times = group_times(consumer, **cluster)
    assert (times.session_s, times.heartbeat_s) == expected


def test_where_they_are_from_is_reported(golden: Golden) -> None:
    times = group_times({}, broker=BROKER, group=GROUP)
    golden(times.session_from)
    golden(times.heartbeat_from)
    assert group_times({}).session_from == "Kafka's default"
    classic = group_times({**CLASSIC, "session.timeout.ms": 9000})
    assert classic.session_from == "kafka.session.timeout.ms"
