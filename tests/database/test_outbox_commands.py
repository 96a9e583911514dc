"""``window-consumer outbox`` as a user runs it, and the relay beside workers."""

from __future__ import annotations

from typing import Any

import pytest

from tests.commands import Commands, kafka_of
from tests.database.conftest import OutboxBench, arrived, bench_at, header
from tests.telemetry.asking import asked
from tests.waiting import wait_until
from window_consumer.database.outbox.diagnosis import OutboxBacklog, diagnose_outbox
from window_consumer.kafka.embedded import EmbeddedBroker
from window_consumer.plan.diagnosis import CauseKind

TOPIC = "order-events"
SHOP = """
from window_consumer import App, Record

app = App("shop")


@app.handler("orders", group="shop")
def charge(order: Record) -> None:
    pass
"""


@pytest.fixture
def broker(embedded: EmbeddedBroker) -> EmbeddedBroker:
    embedded.create_topic(TOPIC, 1)
    return embedded


def configure(commands: Commands, broker: EmbeddedBroker, url: str, **more: Any) -> None:
    commands.configure({"kafka": kafka_of(broker), "outbox": {"database": url}, **more})


def test_the_daemon_relays_and_ends_in_good_order(
    bench: OutboxBench, broker: EmbeddedBroker, commands: Commands
) -> None:
    configure(commands, broker, bench.url)
    daemon = commands.start("outbox", "run")
    row_id = bench.add(TOPIC, b"17", b"paid")
    (message,) = arrived(broker, TOPIC, 1)
    assert header(message, "wc-id") == row_id.encode()
    wait_until(lambda: bench.count() == 0)
    ended = daemon.stop()
    assert ended.code == 0, ended.said


def test_a_worker_relays_and_shows_the_oldest_row(
    bench: OutboxBench, broker: EmbeddedBroker, commands: Commands
) -> None:
    broker.create_topic("orders", 1)
    commands.application(SHOP)
    listen = {"listen": "127.0.0.1:0"}
    configure(commands, broker, bench.url, workers={"charge": {}}, health=listen)
    worker = commands.start("run", "shop:app")
    bench.add(TOPIC, b"17", b"paid")
    arrived(broker, TOPIC, 1)
    worker.wait_for("health: http")
    where = worker.said.partition("health: ")[2].split(" for ")[0]

    def sent() -> bool:
        return "window_consumer_outbox_sent_total 1" in asked(f"{where}/metrics")[1]

    wait_until(sent)
    assert "window_consumer_outbox_oldest_seconds" in asked(f"{where}/metrics")[1]
    ended = worker.stop()
    assert ended.code == 0, ended.said


def test_without_relay_a_worker_leaves_rows_alone(
    in_postgres: OutboxBench, broker: EmbeddedBroker, commands: Commands
) -> None:
    broker.create_topic("orders", 1)
    commands.application(SHOP)
    commands.configure(
        {
            "kafka": kafka_of(broker),
            "outbox": {"database": in_postgres.url, "relay": False},
            "workers": {"charge": {}},
        }
    )
    worker = commands.start("run", "shop:app")
    in_postgres.add(TOPIC, b"17", b"paid")
    worker.wait_for("charge")
    assert worker.stop().code == 0
    assert in_postgres.count() == 1


@pytest.mark.parametrize("command", ["run", "status"])
def test_a_missing_table_is_exit_2_with_the_ddl(
    url: str, broker: EmbeddedBroker, commands: Commands, command: str
) -> None:
    configure(commands, broker, url)
    ended = commands.run("outbox", command)
    assert ended.code == 2, ended.said
    assert "CREATE TABLE wc_outbox" in ended.err


def test_a_table_with_other_columns_is_exit_2_with_their_names(
    in_postgres: OutboxBench, broker: EmbeddedBroker, commands: Commands
) -> None:
    with in_postgres.engine.begin() as connection:
        connection.exec_driver_sql("ALTER TABLE wc_outbox DROP COLUMN last_error")
    configure(commands, broker, in_postgres.url)
    ended = commands.run("outbox", "status")
    assert ended.code == 2, ended.said
    assert "last_error" in ended.err
    assert "CREATE TABLE wc_outbox" in ended.err


def test_the_ddl_makes_the_table(url: str, broker: EmbeddedBroker, commands: Commands) -> None:
    configure(commands, broker, url)
    ended = commands.run("outbox", "ddl")
    assert ended.code == 0, ended.said
    with bench_at(url) as bench:
        bench.outbox.table.drop(bench.engine)
        with bench.engine.begin() as connection:
            for statement in ended.out.split(";"):
                if statement.strip():
                    connection.exec_driver_sql(statement)
        bench.add(TOPIC, b"1", b"x")
        found = commands.run("outbox", "status", "--json")
    assert found.code == 0, found.said
    assert (found.json["waiting"], found.json["blocked"]) == (1, 0)


def test_what_kafka_refuses_is_listed_retried_and_skipped(
    bench: OutboxBench, broker: EmbeddedBroker, commands: Commands
) -> None:
    configure(commands, broker, bench.url)
    row_id = bench.add(TOPIC, b"17", b"refused")
    with bench.engine.begin() as connection:
        bench.database().store.refuse(connection, bench.rows()[0].id, "too large", 3600.0)
    (listed,) = commands.run("outbox", "list", "--failed", "--json").json
    assert (listed["id"], listed["status"], listed["attempts"]) == (row_id, "blocked", 1)
    assert listed["last_error"] == "too large"
    assert row_id in commands.run("outbox", "list", "--failed").out
    assert commands.run("outbox", "skip", row_id, "--json").json == {"skipped": 1}
    assert commands.run("outbox", "status", "--json").json["failed"] == 1
    assert commands.run("outbox", "retry", "--all", "--json").json == {"retried": 1}
    assert commands.run("outbox", "retry", row_id).code == 0
    assert commands.run("outbox", "status", "--json").json["waiting"] == 1


@pytest.mark.parametrize("command", ["retry", "skip"])
def test_ids_or_all_have_to_be_named(
    in_postgres: OutboxBench, broker: EmbeddedBroker, commands: Commands, command: str
) -> None:
    configure(commands, broker, in_postgres.url)
    assert commands.run("outbox", command).code == 2


def test_a_database_that_is_away_is_exit_1_without_its_password(
    broker: EmbeddedBroker, commands: Commands
) -> None:
    configure(commands, broker, "postgresql+psycopg://shop:s3cret@127.0.0.1:1/shop")
    ended = commands.run("outbox", "status")
    assert ended.code == 1, ended.said
    assert "s3cret" not in ended.said


@pytest.mark.parametrize("has_own_brokers", [False, True])
def test_commands_read_only_outbox_and_kafka(
    in_postgres: OutboxBench,
    broker: EmbeddedBroker,
    commands: Commands,
    has_own_brokers: bool,  # noqa: FBT001 - of a table
) -> None:
    """What else is in the file may need a decorator, a variable, or be wrong."""
    kafka = kafka_of(broker)
    rest: dict[str, Any] = {
        "workers": {"charge": {"retry": {"attempts": "${NOT_SET}"}}, "ship": None},
        "admin": {"token": "${NOT_SET}"},
        "trace": 7,
    }
    if has_own_brokers:
        rest["workers"]["charge"]["kafka"] = kafka
    else:
        rest["kafka"] = kafka
    commands.configure({"outbox": {"database": in_postgres.url}, **rest})
    assert commands.run("outbox", "status", "--json").json["waiting"] == 0
    assert commands.run("outbox", "list", "--failed", "--json").json == []
    assert "CREATE TABLE" in commands.run("outbox", "ddl").out
    daemon = commands.start("outbox", "run")
    in_postgres.add(TOPIC, b"17", b"paid")
    arrived(broker, TOPIC, 1)
    assert daemon.stop().code == 0


@pytest.mark.parametrize(
    "url",
    ["mysql://shop@db/shop", "postgresql+asyncpg://shop@db/shop", "sqlite:///:memory:", "nosql"],
)
def test_a_database_that_cannot_be_used_is_exit_2(
    broker: EmbeddedBroker, commands: Commands, url: str
) -> None:
    configure(commands, broker, url)
    assert commands.run("outbox", "status").code == 2


def test_an_outbox_without_a_database_is_refused(
    broker: EmbeddedBroker, commands: Commands
) -> None:
    commands.configure({"kafka": kafka_of(broker), "outbox": {"poll": "1s"}})
    ended = commands.run("outbox", "status")
    assert ended.code == 2
    assert "outbox.database" in ended.err


@pytest.mark.parametrize(
    ("backlog", "is_wrong"),
    [
        (OutboxBacklog(), False),
        (OutboxBacklog(oldest_s=600.0), True),
        (OutboxBacklog(blocked=2), True),
        (OutboxBacklog(error="away"), True),
    ],
)
def test_doctor_names_an_outbox_that_waits(backlog: OutboxBacklog, is_wrong: bool) -> None:  # noqa: FBT001 - of a table
    found = diagnose_outbox(backlog)
    kinds = [cause.kind for cause in found.causes]
    assert kinds == [CauseKind.OUTBOX_WAITS] * is_wrong


def test_doctor_looks_into_the_database(
    in_postgres: OutboxBench, broker: EmbeddedBroker, commands: Commands
) -> None:
    broker.create_topic("orders", 1)
    configure(
        commands,
        broker,
        in_postgres.url,
        workers={"charge": {"topics": ["orders"], "group": "shop"}},
    )
    in_postgres.add(TOPIC, b"17", b"refused")
    with in_postgres.engine.begin() as connection:
        row = in_postgres.rows()[0]
        in_postgres.database().store.refuse(connection, row.id, "too large", 3600.0)
    ended = commands.run("doctor", "--json", "--for", "2s")
    assert ended.code == 3, ended.said
    assert {"outbox_waits"} <= {cause["cause"] for cause in ended.json["causes"]}
