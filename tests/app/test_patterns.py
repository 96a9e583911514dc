from __future__ import annotations

from typing import Any

import pytest

from window_consumer.config import Config, TopicsConfig, WorkerConfig
from window_consumer.plan.topics.patterns import matching, matching_topics

THERE = ["orders", "shop.orders.dlq", "shop.orders.retry.now", "shop.orders.retry.10s"]


@pytest.mark.parametrize("name", [*THERE[1:], "shop.dlq.state", "other.dlq.state", "__internal"])
def test_no_pattern_matches_what_the_framework_writes(name: str) -> None:
    assert matching(["^"], [*THERE, name], copies=()) == ["orders"]


def test_topics_that_only_look_a_little_like_it_match() -> None:
    names = ["state", "dlq.state.of-mind", "shop.state"]
    assert matching(["^"], names, copies=()) == names


def meant(*there: str, **templates: Any) -> list[str]:
    worker = WorkerConfig(name="charge", handler="charge", group="shop", patterns=("^",))
    config = Config(workers={"charge": worker}, topics=TopicsConfig(**templates))
    return matching_topics(config, worker, there)


@pytest.mark.parametrize("ending", ["dlq", "retry.10s", "retry.2.5s", "retry.now"])
def test_no_pattern_matches_our_own_ladder_although_its_source_is_gone(ending: str) -> None:
    assert meant("orders", f"shop.gone.{ending}") == ["orders"]
    assert meant("orders", f"bin-shop-gone.{ending}", dlq="bin-{group}-{topic}.dlq") == (
        ["orders"] if ending == "dlq" else ["orders", f"bin-shop-gone.{ending}"]
    )


def test_sources_are_not_taken_for_a_ladder_that_is_gone() -> None:
    names = ["other.gone.dlq", "shop.gone.retry.later", "shop.gone.retry.10s.old", "shop.dlq"]
    assert meant(*names) == names
    templates = {"dlq": "{group}.{topic}", "retry": "{group}.{topic}.{delay}"}
    assert meant("shop.rates", "shop.rates.5m", **templates) == ["shop.rates", "shop.rates.5m"]
