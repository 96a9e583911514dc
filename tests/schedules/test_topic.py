"""The topic of the last ticks: created at a start, and refused where Kafka would empty it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.kernel import FEATURES
from window_consumer.config import load
from window_consumer.kafka.cluster.topics import Topic
from window_consumer.model.errors import ConfigError, MissingTopicError
from window_consumer.testing.fakes.broker import FakeBroker
from window_consumer.testing.fakes.cluster import FakeCluster

KEPT = "wc.delay.schedules"
SOURCE = Topic("wc.delay", 12, 3, None, None)


class SetCluster(FakeCluster):
    """A cluster whose topics have these settings."""

    settings: dict[str, str]

    def topic_config(self, name: str, timeout_s: float = 0.0) -> dict[str, str]:  # noqa: ARG002 - as there
        return self.settings


def prepare(
    folder: Path,
    cluster: FakeCluster,
    source: Topic | None = SOURCE,
    *,
    dry: bool = False,
    **sections: Any,
) -> None:
    schedules = {"job": {"cron": "0 2 * * *", "to": "reports"}}
    file = folder / "workers.yaml"
    file.write_text(yaml.safe_dump({"delay": {"to": ["x"]}, "schedules": schedules, **sections}))
    loaded = load(file, {}, sections=FEATURES.sections)
    (topic,) = (each for each in FEATURES.state_topics(loaded.config) if each.name == KEPT)
    topic.prepare(loaded, loaded.config.workers["delay"], cluster, source, dry=dry)


@pytest.fixture
def broker() -> FakeBroker:
    """A broker with the topic of the delay service alone."""
    broker = FakeBroker("test")
    broker.create_topic(SOURCE.name, SOURCE.partitions)
    return broker


def test_a_missing_topic_is_created_with_one_partition(broker: FakeBroker, tmp_path: Path) -> None:
    prepare(tmp_path, FakeCluster(broker))
    assert len(broker.topics.by_name[KEPT].logs) == 1


@pytest.mark.parametrize("source", [SOURCE, None])
def test_a_check_creates_nothing(source: Topic | None, broker: FakeBroker, tmp_path: Path) -> None:
    prepare(tmp_path, FakeCluster(broker), source, dry=True)
    assert KEPT not in broker.topics.by_name


@pytest.mark.parametrize("dry", [True, False])
def test_where_it_may_not_be_created_the_error_has_the_command(
    broker: FakeBroker, tmp_path: Path, *, dry: bool
) -> None:
    with pytest.raises(MissingTopicError) as error:
        prepare(tmp_path, FakeCluster(broker), dry=dry, topics={"create": False})
    assert f"--topic {KEPT} --partitions 1" in str(error.value)


@pytest.mark.parametrize("policy", ["delete", "compact,delete"])
def test_a_topic_that_kafka_would_empty_is_refused(
    policy: str, broker: FakeBroker, tmp_path: Path
) -> None:
    broker.create_topic(KEPT, 1)
    cluster = SetCluster(broker)
    cluster.settings = {"cleanup.policy": "compact"}
    prepare(tmp_path, cluster)
    cluster.settings = {"cleanup.policy": policy}
    with pytest.raises(ConfigError):
        prepare(tmp_path, cluster)
