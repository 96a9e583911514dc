"""The section ``delay``: what it refuses, and which topics and permissions follow from it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.commands import Commands
from tests.kernel import FEATURES
from tests.plans import from_shell
from window_consumer.config import LoadedConfig, TopicNames, load
from window_consumer.model.errors import ConfigError

KAFKA = "kafka: {bootstrap.servers: 'broker:9092'}\n"
DAY_MS = 86_400_000


@pytest.fixture
def loaded(tmp_path: Path) -> Callable[[str], LoadedConfig]:
    def load_text(text: str) -> LoadedConfig:
        file = tmp_path / "workers.yaml"
        file.write_text(KAFKA + text)
        return load(file, sections=FEATURES.sections)

    return load_text


@pytest.mark.parametrize(
    ("text", "key", "line"),
    [
        ("delay:\n  max: 1d\n", "delay.to", 2),
        ("delay:\n  to: []\n", "delay.to", 3),
        ("delay:\n  to: ['*orders']\n", "delay.to[0]", 3),
        ("delay:\n  to: [wc.delay.5s]\n", "delay.to[0]", 3),
        ("delay:\n  to: [a, shop.orders.retry.10s]\n", "delay.to[1]", 3),
        ("delay:\n  to: [orders]\n  levels: [10s, 5s]\n", "delay.levels[1]", 4),
        ("delay:\n  to: [orders]\n  precision: about\n", "delay.precision", 4),
        ("delay:\n  to: [orders]\n  max: 30\n", "delay.max", 4),
        ("delay:\n  to: [orders]\n  partitions: 0\n", "delay.partitions", 4),
        ("delay:\n  to: [orders]\n  topics: x\n", "delay.topics", 4),
        ("delay:\n  to: [orders]\n  delivery: at_most_once\n", "delay.delivery", 4),
        (
            "delay:\n  to: [o]\n  store: wheel\n  directory: d\n  delivery: exactly_once\n",
            "delay.delivery",
            6,
        ),
        (
            "delay:\n  to: [o]\n  store: wheel\n  directory: d\n  precision: level\n",
            "delay.precision",
            6,
        ),
        ("delay:\n  to: [o]\n  store: wheel\n", "delay.directory", 2),
        (
            "delay:\n  to: [orders]\nworkers:\n  delay: {topics: [a], group: b}\n",
            "workers.delay",
            5,
        ),
    ],
)
def test_what_is_wrong_is_named_with_its_line(
    text: str, key: str, line: int, loaded: Callable[[str], LoadedConfig]
) -> None:
    with pytest.raises(ConfigError) as caught:
        loaded(text)
    ((where, found),) = caught.value.wrong
    assert found == key
    assert where.endswith(f"workers.yaml:{line}")


def test_a_file_without_workers_has_the_service_alone(
    loaded: Callable[[str], LoadedConfig],
) -> None:
    config = loaded("delay: {to: [orders], topic: shop.later}\n").config
    (worker,) = config.workers.values()
    assert (worker.name, worker.group, worker.topics) == ("delay", "shop.later", ("shop.later",))
    assert TopicNames(worker, config.topics).dlq("shop.later") == "shop.later.dlq"


def test_without_the_section_there_is_no_service(loaded: Callable[[str], LoadedConfig]) -> None:
    assert set(loaded("workers: {a: {topics: [b], group: c}}\n").config.workers) == {"a"}


@pytest.mark.parametrize("group", ["wc.delay", "later"])
def test_topics_plan_has_its_topics_and_permissions(group: str, commands: Commands) -> None:
    section: dict[str, Any] = {
        "to": ["orders", "mail-*"],
        "levels": ["10s", "30d"],
        "partitions": 5,
        "group": group,
    }
    commands.configure({"kafka": {"bootstrap.servers": "broker:9092"}, "delay": section})
    sizes = ("--partitions", "6", "--replication-factor", "3")
    ended = commands.run("topics", "plan", *sizes)
    assert ended.code == 0, ended.said
    printed = from_shell(ended.out)
    kept = {name: each.config.get("retention.ms") for name, each in printed.topics.items()}
    assert kept == {
        "wc.delay": str(14 * DAY_MS),
        "wc.delay.cancel": str(31 * DAY_MS),
        "wc.delay.10s": str(14 * DAY_MS),
        "wc.delay.30d": str(60 * DAY_MS),
        "wc.delay.dlq": str(14 * DAY_MS),
        "wc.delay.now": str(14 * DAY_MS),
        f"{group}.dlq.state": None,
    }
    assert printed.topics["wc.delay.10s"].partitions == 5
    rights = {(each.name, each.operation) for each in printed.acls if each.kind == "topic"}
    assert {("wc.delay", "Read"), ("wc.delay.", "Write"), ("orders", "Write")} <= rights
    assert ("mail-", "Write") in rights


@pytest.mark.parametrize(
    ("section", "hops"),
    [
        ({}, "360 hops"),
        ({"levels": ["5s", "1h", "1d"]}, None),
        ({"max": "1d"}, None),
        ({"max": "200d", "levels": ["1d"]}, "200 hops"),
    ],
)
def test_check_advises_longer_levels(
    section: dict[str, Any], hops: str | None, commands: Commands
) -> None:
    commands.application("from window_consumer import App\n\napp = App('shop')\n")
    kafka = {"bootstrap.servers": "broker:9092"}
    commands.configure({"kafka": kafka, "delay": {"to": ["orders"], **section}})
    ended = commands.run("check", "shop:app")
    assert ended.code == 0, ended.said
    assert ("hops" in ended.said) == (hops is not None)
    assert (hops or "") in ended.said
