"""Members of one group have the same levels, and the topic that they read keeps its records."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
import yaml
from confluent_kafka.admin import AdminClient

from tests import topics
from tests.commands import DEADLINE_S
from tests.conftest import MakeTopic
from tests.delay.service import DelayService
from tests.golden_texts import Golden
from tests.kernel import FEATURES
from tests.waiting import wait_until
from window_consumer.kafka.cluster.topics import ConsumerGroup, ListedMember
from window_consumer.model.errors import ConfigError
from window_consumer.plan.app_plan import PlannedWorker
from window_consumer.plan.built_in_workers import check_levels, check_source
from window_consumer.plan.planning import make_plan

MakePlanned = Callable[..., PlannedWorker]


@pytest.fixture
def planned(tmp_path: Path) -> MakePlanned:
    """Return a function that plans the service with these keys of its section."""

    def plan(client_id: str | None = None, **section: Any) -> PlannedWorker:
        kafka = {"bootstrap.servers": "broker:9092"}
        if client_id is not None:
            kafka["client.id"] = client_id
        file = tmp_path / "workers.yaml"
        file.write_text(yaml.safe_dump({"kafka": kafka, "delay": {"to": ["orders"], **section}}))
        (worker,) = make_plan(config=file, handlers=None, features=FEATURES).workers
        return worker

    return plan


def group_of(*client_ids: str) -> ConsumerGroup:
    listed = tuple(ListedMember(each, f"/10.0.0.{n}") for n, each in enumerate(client_ids))
    return ConsumerGroup(len(listed), None, listed=listed)


def may_join(worker: PlannedWorker, client_ids: Sequence[str]) -> bool:
    try:
        check_levels(worker.config, group_of(*client_ids), "workers.yaml:1")
    except ConfigError:
        return False
    return True


def client_id(worker: PlannedWorker) -> str:
    return str(worker.consumer["client.id"])


def test_only_members_with_the_same_levels_may_join(planned: MakePlanned) -> None:
    member = planned(levels=["10s", "1m"])
    there = [client_id(member)]
    assert may_join(planned(levels=["10s", "60s"], to=["mail"], max="1d"), there)
    assert not may_join(planned(levels=["10s"]), there)
    assert not may_join(planned(levels=["10s", "1m", "1h"]), there)
    assert not may_join(planned(), [client_id(planned()), *there])


def test_the_error_names_the_members_with_other_levels(planned: MakePlanned) -> None:
    ours, other = planned(levels=["1m"]), planned(levels=["10s"])
    group = group_of(client_id(ours), client_id(other))
    with pytest.raises(ConfigError) as caught:
        check_levels(ours.config, group, "workers.yaml:1")
    assert f"{client_id(other)} on /10.0.0.1" in str(caught.value)
    assert client_id(ours) not in str(caught.value)


def test_a_client_id_of_the_user_is_kept(planned: MakePlanned) -> None:
    one, two = planned("till"), planned("kiosk", levels=["10s"])
    assert client_id(one).startswith("till-levels-")
    assert one.producer["client.id"] == one.admin["client.id"] == "till"
    assert may_join(planned("other"), [client_id(one)])
    assert not may_join(one, [client_id(two)])


def test_members_that_do_not_tell_their_levels_hold_up_nobody(planned: MakePlanned) -> None:
    assert may_join(planned(), ["rdkafka", "wc-delay", "my-levels-high"])
    assert may_join(planned(), [])


@pytest.mark.parametrize("policy", ["compact", "compact,delete", "delete,compact"])
def test_a_compacted_topic_is_refused(policy: str, planned: MakePlanned, golden: Golden) -> None:
    worker = planned().config
    with golden.raises(ConfigError):
        check_source(worker, "wc.delay", {"cleanup.policy": policy}, "workers.yaml:1")


@pytest.mark.parametrize("settings", [{"cleanup.policy": "delete"}, {}])
def test_any_other_topic_is_read(settings: dict[str, str], planned: MakePlanned) -> None:
    check_source(planned().config, "wc.delay", settings, "workers.yaml:1")


def test_a_member_with_other_levels_does_not_start(on_kafka: DelayService) -> None:
    on_kafka.configure()
    running = on_kafka.start()
    on_kafka.configure(levels=["1s"])
    refused = on_kafka.commands.run("delay", "run")
    assert refused.code == 2, refused.said
    assert "wc-delay-levels-" in refused.err
    on_kafka.configure(to=["mail"])
    beside = on_kafka.start()
    assert running.stop().code == beside.stop().code == 0
    on_kafka.configure(levels=["1s"])
    assert on_kafka.start().stop().code == 0


def test_a_service_does_not_start_on_a_compacted_topic(
    on_kafka: DelayService, make_topic: MakeTopic
) -> None:
    on_kafka.topic = make_topic("shop.later", 1, {"cleanup.policy": "compact,delete"})
    on_kafka.configure()
    refused = on_kafka.commands.run("delay", "run")
    assert refused.code == 2, refused.said
    assert f"{on_kafka.topic} is compacted" in refused.err


def test_topics_that_are_deleted_while_a_member_runs_are_made_again(
    on_kafka: DelayService, make_topic: MakeTopic
) -> None:
    orders = make_topic("orders", 1)
    on_kafka.configure(to=[orders])
    running = on_kafka.start()
    on_kafka.send("before", to=orders, wc_delay=0)
    on_kafka.wait_for(orders, 1)
    admin = AdminClient(on_kafka.client)
    for name in (on_kafka.topic, f"{on_kafka.topic}.1s"):
        topics.delete(admin, name)
    wait_until(lambda: topics.led(admin, on_kafka.topic), DEADLINE_S, "it is there again")
    on_kafka.send("after", to=orders, wc_delay=1200)
    assert set(on_kafka.wait_for(orders, 2)) == {"before", "after"}
    assert running.stop().code == 0
