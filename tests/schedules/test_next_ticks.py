"""What ``check``, ``delay status`` and ``topics plan`` say about schedules."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest

from tests.commands import Commands
from tests.delay.service import DelayService

NIGHTLY = {"cron": "0 2 * * *", "timezone": "Europe/Berlin", "to": "reports", "key": "nightly"}
CONFIG = {
    "kafka": {"bootstrap.servers": "127.0.0.1:1"},
    "delay": {"to": ["orders"], "topic": "shop.later", "group": "later"},
    "workers": {"charge": {"topics": ["orders"], "group": "shop"}},
    "schedules": {"nightly-report": NIGHTLY},
}
APPLICATION = """\
from window_consumer import App, Record
app = App("shop")

@app.handler()
def charge(order: Record) -> None:
    pass
"""


@pytest.fixture
def shop(commands: Commands) -> Commands:
    commands.application(APPLICATION)
    commands.configure(CONFIG)
    return commands


def ticks_of(found: list[dict[str, Any]]) -> list[datetime]:
    (schedule,) = found
    assert schedule["name"] in {"nightly-report", "secondly"}
    return [datetime.fromisoformat(each) for each in schedule["next"]]


def test_check_prints_the_next_ticks(shop: Commands) -> None:
    ended = shop.run("check", "shop:app", "--json")
    assert ended.code == 0, ended.said
    first, *others = ticks_of(ended.json["schedules"])
    assert first.hour in {0, 1}
    assert first > datetime.now(UTC)
    assert len(others) == 2
    assert f"{first:%Y-%m-%dT%H:%M:%SZ}" in shop.run("check", "shop:app").out


def test_the_plan_has_its_topic_and_what_it_writes_to(shop: Commands) -> None:
    sizes = ("--partitions", "3", "--replication-factor", "2")
    plan = shop.run("topics", "plan", "shop:app", *sizes)
    assert plan.code == 0, plan.said
    (topic,) = (line for line in plan.out.splitlines() if "--topic shop.later.schedules" in line)
    assert "--partitions 1 --replication-factor 2 --config cleanup.policy=compact" in topic
    acls = [line for line in plan.out.splitlines() if line.startswith("kafka-acls.sh")]
    assert any("Write" in line and line.endswith("--topic reports") for line in acls)
    own = next(line for line in acls if "--topic shop.later. " in line)
    assert "--operation Read --operation Write" in own


def test_status_lists_the_next_ticks(service: DelayService) -> None:
    before = datetime.now(UTC)
    status = service.commands.run("delay", "status", "--json")
    assert status.code == 0, status.said
    ticks = ticks_of(status.json["schedules"])
    assert [(after - ticks[0]).total_seconds() for after in ticks] == [0, 1, 2]
    assert ticks[0] > before
    assert "schedule secondly" in service.commands.run("delay", "status").out
