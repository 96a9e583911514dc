from __future__ import annotations

import pytest

from window_consumer.app.patterns import matching

THERE = ["orders", "shop.orders.dlq", "shop.orders.retry.now", "shop.orders.retry.10s"]


@pytest.mark.parametrize("name", [*THERE[1:], "shop.dlq.state", "other.dlq.state", "__internal"])
def test_no_pattern_matches_what_the_framework_writes(name: str) -> None:
    assert matching(["^"], [*THERE, name], copies=()) == ["orders"]


def test_topics_that_only_look_a_little_like_it_match() -> None:
    names = ["state", "dlq.state.of-mind", "shop.state"]
    assert matching(["^"], names, copies=()) == names
