"""Rows of the outbox are cancelled in a transaction, whether they are sent or not."""

from __future__ import annotations

import uuid
from datetime import UTC, datetime

import pytest
import sqlalchemy as sa
from sqlalchemy.orm import Session

from tests.database.conftest import OutboxBench, arrived, relaying
from tests.waiting import wait_until
from window_consumer.database import Outbox
from window_consumer.kafka.embedded import EmbeddedBroker

TOPIC = "order-events"
CANCEL = "wc.delay.cancel"


def rows(bench: OutboxBench) -> list[tuple[str, bytes | None]]:
    with bench.engine.connect() as connection:
        columns = bench.table.c.topic, bench.table.c.key
        found = connection.execute(bench.table.select().with_only_columns(*columns))
        return [(topic, key) for topic, key in found]


def test_a_row_that_waits_is_deleted(bench: OutboxBench) -> None:
    with Session(bench.engine) as session, session.begin():
        waiting = bench.outbox.add(session, TOPIC, b"1", b"in an hour", delay="1h")
        bench.outbox.add(session, TOPIC, b"2", b"too", delay="1h")
    with Session(bench.engine) as session, session.begin():
        assert bench.outbox.cancel(session, waiting)
    assert rows(bench) == [(TOPIC, b"2")]


def test_a_row_that_was_sent_is_cancelled_at_the_delay_service(
    bench: OutboxBench, embedded: EmbeddedBroker
) -> None:
    for topic in ("wc.delay", CANCEL):
        embedded.create_topic(topic, 1)
    with Session(bench.engine) as session, session.begin():
        sent = bench.outbox.add(session, "wc.delay", b"1", headers={"wc-deliver-to": TOPIC})
    with relaying(bench, embedded.bootstrap):
        arrived(embedded, "wc.delay", 1)
        wait_until(lambda: bench.count() == 0)
        with Session(bench.engine) as session, session.begin():
            assert not bench.outbox.cancel(session, str(sent), datetime(2030, 1, 1, tzinfo=UTC))
        (message,) = arrived(embedded, CANCEL, 1)
    assert message.key() == str(sent).encode()
    assert message.value()
    assert dict(message.headers() or ())["wc-deliver-at"] == b"1893456000000"


def test_a_row_that_the_relay_may_be_sending_is_cancelled_twice(bench: OutboxBench) -> None:
    with Session(bench.engine) as session, session.begin():
        due = bench.outbox.add(session, "wc.delay", b"1", headers={"wc-deliver-to": TOPIC})
    with bench.engine.begin() as connection:
        assert bench.outbox.cancel(connection, due)
    assert rows(bench) == [(CANCEL, str(due).encode())]


def test_what_was_sent_is_cancelled_at_the_service_that_the_outbox_names(
    bench: OutboxBench,
) -> None:
    outbox = Outbox(sa.MetaData(), delay_topic="team.delay")
    with Session(bench.engine) as session, session.begin():
        sent = outbox.add(session, "team.delay", b"1", headers={"wc-deliver-to": TOPIC})
        other = outbox.add(session, "wc.delay", b"1", headers={"wc-deliver-to": TOPIC})
    with Session(bench.engine) as session, session.begin():
        assert outbox.cancel(session, sent)
        assert outbox.cancel(session, other)
    assert rows(bench) == [("team.delay.cancel", str(sent).encode())]


def test_what_is_rolled_back_is_not_cancelled(bench: OutboxBench) -> None:
    with Session(bench.engine) as session, session.begin():
        waiting = bench.outbox.add(session, TOPIC, b"1", b"in an hour", delay="1h")
    with Session(bench.engine) as session:
        bench.outbox.cancel(session, waiting)
        bench.outbox.cancel(session, uuid.uuid4())
        session.rollback()
    assert rows(bench) == [(TOPIC, b"1")]


def test_an_id_of_another_sender_is_cancelled_at_the_delay_service(bench: OutboxBench) -> None:
    with bench.engine.begin() as connection:
        assert not bench.outbox.cancel(connection, "mail 7")
        with pytest.raises(ValueError, match="empty"):
            bench.outbox.cancel(connection, "")
    assert rows(bench) == [(CANCEL, b"mail 7")]
