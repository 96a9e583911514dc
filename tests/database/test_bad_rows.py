"""Rows that are no records: each is refused, and the relay goes on."""

from __future__ import annotations

import signal
import uuid
from http import HTTPStatus
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa

from tests.commands import Commands, kafka_of
from tests.database.conftest import OutboxBench, arrived, bench_at, relaying
from tests.telemetry.asking import asked
from tests.waiting import wait_until
from window_consumer.database.outbox.diagnosis import OutboxBacklog, diagnose_outbox
from window_consumer.database.outbox.relay import OutboxRelay
from window_consumer.kafka.embedded import EmbeddedBroker
from window_consumer.model.log_events import LogEvent
from window_consumer.testing.real_kafka_settings import free_addresses

TOPIC = "order-events"

BAD_HEADERS: list[Any] = [
    {"tenant": "eu"},
    "text",
    7,
    True,
    [["one"]],
    [["a", "b", "c"]],
    [[1, "number"]],
    [["a", 1]],
    [["a", {"base64": 7}]],
    [["a", {"base64": "?"}]],
    [["a", {"b64": "AA=="}]],
    ["tenant", "eu"],
    [None],
]

BAD_PLACES: list[dict[str, Any]] = [
    {"topic": ""},
    {"topic": "an order"},
    {"topic": ".."},
    {"topic": "ä" * 20},
    {"topic": "x" * 250},
    {"partition": -7},
    {"partition": 1_000_000},
    {"timestamp": -7},
]


@pytest.fixture
def broker(embedded: EmbeddedBroker) -> EmbeddedBroker:
    embedded.create_topic(TOPIC, 1)
    return embedded


def change(bench: OutboxBench, row_id: str, **values: Any) -> None:
    with bench.engine.begin() as connection:
        ids = bench.table.c.id == uuid.UUID(row_id)
        connection.execute(bench.table.update().where(ids).values(values))


def add_bad(bench: OutboxBench) -> set[str]:
    """Add a row of each kind that no relay can send, by hand."""
    bad = set()
    for stored in BAD_HEADERS:
        bad.add(row_id := bench.add(TOPIC, b"bad", b"bad"))
        change(bench, row_id, headers=stored)
    for place in BAD_PLACES:
        bad.add(row_id := bench.add(TOPIC, b"bad", b"bad"))
        change(bench, row_id, **place)
    if bench.engine.dialect.name == "sqlite":  # whose columns hold what they are given
        for column, value in (
            ("headers", "{no json"),
            ("headers", "[" * 100_000),
            ("key", "text"),
            ("payload", 7),
            ("partition", "first"),
            ("timestamp", "now"),
        ):
            bad.add(row_id := bench.add(TOPIC, b"bad", b"bad"))
            with bench.engine.begin() as connection:
                ids = sa.literal_column("id") == uuid.UUID(row_id).hex
                values: dict[Any, Any] = {sa.column(column): value}
                connection.execute(
                    sa.table("wc_outbox", *values).update().where(ids).values(values)
                )
    return bad


def test_a_row_that_is_no_record_is_refused_and_others_go_on(
    bench: OutboxBench, broker: EmbeddedBroker
) -> None:
    bad = add_bad(bench)
    bench.add(TOPIC, b"good", b"1", headers={"tenant": "eu"})
    failed = bench.table.c.status == "failed"
    with relaying(bench, broker.bootstrap, on_refused="skip") as relay:
        (message,) = arrived(broker, TOPIC, 1)
        wait_until(lambda: bench.count(failed) == len(bad))
        assert relay.trouble is None
        bench.add(TOPIC, b"good", b"2")
        arrived(broker, TOPIC, 2)
    assert message.value() == b"1"
    with bench.engine.connect() as connection:
        left = connection.execute(sa.text("SELECT id, last_error FROM wc_outbox")).all()
    assert {str(uuid.UUID(str(row_id))) for row_id, _ in left} == bad
    assert all(error for _, error in left)


def test_a_row_that_is_no_record_blocks_its_key_until_it_is_repaired(
    bench: OutboxBench, broker: EmbeddedBroker
) -> None:
    first = bench.add(TOPIC, b"1", b"first")
    bench.add(TOPIC, b"1", b"second")
    change(bench, first, headers={"tenant": "eu"})
    with relaying(bench, broker.bootstrap, refused_again_s=0.2):
        wait_until(lambda: bench.count(bench.table.c.status == "blocked") == 1)
        bench.add(TOPIC, b"2", b"other")
        arrived(broker, TOPIC, 1)
        change(bench, first, headers=[["tenant", "eu"]])
        messages = arrived(broker, TOPIC, 3)
    assert [each.value() for each in messages] == [b"other", b"first", b"second"]


class FailsOnce(OutboxRelay):
    """Meets an error that nobody expected, until ``is_well`` is set."""

    is_well = False

    def relay_due(self, connection: sa.Connection) -> int:
        if not self.is_well:
            raise ZeroDivisionError("a bug")
        return super().relay_due(connection)


def test_a_relay_that_meets_an_unexpected_error_says_so_and_begins_again(
    bench: OutboxBench, broker: EmbeddedBroker, caplog: pytest.LogCaptureFixture
) -> None:
    bench.add(TOPIC, b"1", b"late")
    with relaying(bench, broker.bootstrap, relay_class=FailsOnce) as relay:
        wait_until(lambda: relay.figures().failure is not None)
        found = diagnose_outbox(OutboxBacklog(), [relay.figures().failure or ""])
        assert [cause.kind for cause in found.causes] == ["outbox_waits"]
        assert isinstance(relay, FailsOnce)
        relay.is_well = True
        arrived(broker, TOPIC, 1)
        wait_until(lambda: relay.figures().failure is None)
    events = [getattr(record, "event", None) for record in caplog.records]
    assert LogEvent.OUTBOX_RELAY_FAILED in events


SHOP = """
from window_consumer import App, Record

app = App("shop")


@app.handler("orders", group="shop")
def charge(order: Record) -> None:
    pass
"""


def test_a_worker_whose_relay_fails_is_not_ready_and_doctor_names_it(
    tmp_path: Path, broker: EmbeddedBroker, commands: Commands
) -> None:
    """Not even the id of a row can be read: only SQLite takes such a one."""
    broker.create_topic("orders", 1)
    commands.application(SHOP)
    url = f"sqlite:///{tmp_path / 'broken.db'}"
    port = free_addresses(1)[0].rpartition(":")[2]
    where = f"127.0.0.1:{port}"
    given = {"topics": ["orders"], "group": "shop"}
    commands.configure(
        {
            "kafka": kafka_of(broker),
            "outbox": {"database": url},
            "workers": {"charge": given},
            "health": {"listen": where},
        }
    )
    with bench_at(url) as bench:
        worker = commands.start("run", "shop:app")
        wait_until(lambda: is_ready(where))
        row_id = bench.add(TOPIC, b"1", b"late")
        arrived(broker, TOPIC, 1)
        wait_until(lambda: bench.count() == 0)
        bench.add(TOPIC, b"1", b"late", delay=0.5)
        with bench.engine.begin() as connection:
            connection.exec_driver_sql("UPDATE wc_outbox SET id = 'none'")
        wait_until(lambda: not is_ready(where))
        found = commands.run("doctor", "--json", "--for", "2s").json
        (cause,) = (each for each in found["causes"] if each["cause"] == "outbox_waits")
        assert "ValueError" in cause["sentence"]
        with bench.engine.begin() as connection:
            again = bench.table.update().values(id=uuid.UUID(row_id))
            connection.execute(again)
        arrived(broker, TOPIC, 2)
        wait_until(lambda: is_ready(where))
        worker.process.send_signal(signal.SIGTERM)
        assert worker.process.wait(60) == 0  # with a traceback in its log, as is right here


def is_ready(where: str) -> bool:
    try:
        return asked(f"http://{where}/readyz")[0] == HTTPStatus.OK
    except OSError:
        return False
