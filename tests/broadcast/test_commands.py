"""What commands say about broadcast workers."""

from __future__ import annotations

import pytest

from tests.commands import DEADLINE_S, Commands, Ended, kafka_of
from tests.golden_texts import Golden
from tests.telemetry.asking import asked
from tests.waiting import wait_until
from window_consumer.kafka.embedded import EmbeddedBroker, NewRecord
from window_consumer.model.log_events import LogEvent

APP = """
from window_consumer import App, Record

app = App("prices")

@app.handler("prices", ordering="key")
def update(record: Record) -> None:
    pass
"""

CONFIG = """
kafka: {bootstrap.servers: 127.0.0.1:1}
workers:
  update: {topics: [prices], delivery: broadcast, broadcast: {from: 15m}}
"""


GATED_APP = """
from pathlib import Path
from time import sleep

from window_consumer import App, Record

app = App("prices")

@app.handler("prices", ordering="key")
def update(record: Record) -> None:
    print(f"updates {(record.key or b'').decode()}", flush=True)
    while not Path("gate").exists():
        sleep(0.01)
"""

POISONED_APP = """
from window_consumer import App, Record

app = App("prices")

@app.handler("prices", ordering="key")
def update(record: Record) -> None:
    if record.text() == "poison":
        raise ValueError(record.text())
    print(f"updates {record.text()}", flush=True)
"""
TOKEN = "0123456789abcdef"  # noqa: S105 - no secret of anybody


@pytest.fixture
def shop(commands: Commands) -> Commands:
    commands.application(APP)
    commands.configure(CONFIG)
    return commands


def test_check_says_that_each_process_reads_everything(shop: Commands) -> None:
    ended = shop.run("check", "shop:app", "--json")
    assert ended.code == 0
    bounds = ended.json["workers"]["update"]
    assert ("15m" in bounds["begins"], bounds["when_spent"]) == (True, "stop")
    assert bounds["warnings"] == []
    said = shop.run("check", "shop:app").out
    assert "15m" in said
    assert "session" not in said
    assert "retry.levels" not in said


def test_topics_plan_needs_neither_a_group_nor_topics_for_copies(shop: Commands) -> None:
    said = shop.run("topics", "plan", "--partitions", "2", "--replication-factor", "1").out
    assert "--topic prices" in said
    assert "--group" not in said
    assert "kafka-topics.sh" not in said


@pytest.mark.parametrize(
    "command",
    [
        ("dlq", "list"),
        ("dlq", "redrive", "--dry-run"),
        ("replay", "--from", "2024-01-01"),
        ("rewind", "--to", "2024-01-01"),
    ],
    ids=lambda command: " ".join(command[:2]),
)
def test_commands_about_groups_and_dead_letters_refuse_it(
    shop: Commands, command: tuple[str, ...], golden: Golden
) -> None:
    ended = shop.run(*command, "--worker", "update")
    assert ended.code == 2
    golden(ended.err.splitlines()[-1])


def test_probes_are_told_503_until_what_was_there_is_handled(
    commands: Commands, embedded: EmbeddedBroker
) -> None:
    embedded.create_topic("prices", 1)
    embedded.fill("prices", [NewRecord(b"1", b"bread"), NewRecord(b"2", b"milk")])
    commands.application(GATED_APP)
    worker = {"delivery": "broadcast", "broadcast": {"from": "earliest"}}
    health = {"listen": "127.0.0.1:0"}
    config = {"kafka": kafka_of(embedded), "workers": {"update": worker}, "health": health}
    commands.configure(config)
    running = commands.start("run", "shop:app")
    where = running.wait_for_event(LogEvent.HEALTH_STARTED)["url"]
    running.wait_for("updates milk")
    assert asked(f"{where}/livez")[0] == 200
    assert asked(f"{where}/readyz")[0] == 503
    (commands.directory / "gate").touch()
    wait_until(lambda: asked(f"{where}/readyz")[0] == 200, DEADLINE_S, "it is ready")
    embedded.fill("prices", [NewRecord(b"3", b"milk")])  # later records do not change it
    assert asked(f"{where}/readyz")[0] == 200
    assert running.stop().code == 0


def test_a_blocked_record_is_skipped_and_the_worker_is_paused_and_resumed(
    commands: Commands, embedded: EmbeddedBroker
) -> None:
    """All of it is of one process: the others of the service continue."""
    embedded.create_topic("prices", 1)
    embedded.fill("prices", [NewRecord(b"poison", b"milk"), NewRecord(b"first", b"milk")])
    commands.application(POISONED_APP)
    retry = {"attempts": 5, "backoff": "10m..10m"}
    worker = {"delivery": "broadcast", "broadcast": {"from": "earliest"}, "retry": retry}
    listening = {"listen": "127.0.0.1:0"}
    sections = {"admin": {**listening, "token": TOKEN}, "health": listening}
    config = {"kafka": kafka_of(embedded), "workers": {"update": worker}, **sections}
    commands.configure(config)
    running = commands.start("run", "shop:app")
    health = running.wait_for_event(LogEvent.HEALTH_STARTED)["url"]
    url = running.wait_for_event(LogEvent.ADMIN_STARTED)["url"]

    def ask(command: str, *more: str) -> Ended:
        ended = commands.run(command, "-w", "update", *more, "--url", url, "--token", TOKEN)
        assert ended.code == 0, ended.said
        return ended

    running.wait_for_event(LogEvent.CALL_FAILED, attempt=1)
    assert asked(f"{health}/readyz")[0] == 503
    assert ask("skip", "--record", "prices/0/0").out == "prices/0/0 is skipped\n"
    running.wait_for("updates first")
    wait_until(lambda: asked(f"{health}/readyz")[0] == 200, DEADLINE_S, "it is ready")
    ask("pause", "--reason", "checks prices")
    embedded.produce("prices", b"second", key=b"milk", partition=0)
    status = commands.run("status", "--url", url, "--token", TOKEN, "--json").json["workers"][0]
    assert (status["ready"], [each["kind"] for each in status["problems"]]) == (True, ["paused"])
    assert asked(f"{health}/readyz")[0] == 200
    ask("resume")
    running.wait_for("updates second")
    assert running.stop().summary() == {"processed": 2, "skipped": 1}
