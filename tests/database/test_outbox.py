"""Rows of committed transactions become records."""

from __future__ import annotations

import uuid
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncSession, create_async_engine
from sqlalchemy.orm import Session

from tests.database.conftest import OutboxBench, arrived, header, relaying
from tests.waiting import wait_until
from window_consumer.kafka.embedded import EmbeddedBroker
from window_consumer.model.produce import Produce

TOPIC = "order-events"


@pytest.fixture
def broker(embedded: EmbeddedBroker) -> EmbeddedBroker:
    embedded.create_topic(TOPIC, 3)
    return embedded


def test_a_committed_row_arrives_with_its_id_and_is_deleted(
    bench: OutboxBench, broker: EmbeddedBroker
) -> None:
    headers: list[tuple[str, str | bytes | None]] = [
        ("tenant", "eu"),
        ("raw", b"\xff\x00"),
        ("none", None),
        ("tenant", "us"),
    ]
    with Session(bench.engine) as session, session.begin():
        row_id = bench.outbox.add(
            session, TOPIC, key=b"\x00\xff17", value=b"\x00paid", headers=headers, partition=2
        )
    with relaying(bench, broker.bootstrap):
        (message,) = arrived(broker, TOPIC, 1)
        wait_until(lambda: bench.count() == 0)
    assert (message.key(), message.value()) == (b"\x00\xff17", b"\x00paid")
    assert message.partition() == 2
    assert header(message, "wc-id") == str(row_id).encode()
    own = [pair for pair in message.headers() or () if pair[0] != "wc-id"]
    assert own == [("tenant", b"eu"), ("raw", b"\xff\x00"), ("none", None), ("tenant", b"us")]


def test_a_row_that_is_rolled_back_never_arrives(
    bench: OutboxBench, broker: EmbeddedBroker
) -> None:
    with relaying(bench, broker.bootstrap):
        with Session(bench.engine) as session:
            bench.outbox.add(session, TOPIC, b"1", b"rolled back")
            session.rollback()
        bench.add(TOPIC, b"1", b"committed")
        assert [each.value() for each in arrived(broker, TOPIC, 1)] == [b"committed"]
        wait_until(lambda: bench.count() == 0)
    assert len(broker.read_all(TOPIC)) == 1


def test_the_rows_of_a_key_stay_in_order(bench: OutboxBench, broker: EmbeddedBroker) -> None:
    with relaying(bench, broker.bootstrap, batch=7):
        for number in range(40):
            with bench.engine.begin() as connection:
                for key in (b"a", b"b", b"c"):
                    bench.outbox.add(connection, TOPIC, key, b"%d" % number)
        messages = arrived(broker, TOPIC, 120)
    for key in (b"a", b"b", b"c"):
        values = [each.value() for each in messages if each.key() == key]
        assert values == [b"%d" % number for number in range(40)]


def test_what_is_kept_is_marked_and_deleted_later(
    bench: OutboxBench, broker: EmbeddedBroker
) -> None:
    bench.add(TOPIC, b"1", b"kept")
    published = bench.table.c.published_at.is_not(None)
    with relaying(bench, broker.bootstrap, keep_s=3600.0):
        wait_until(lambda: bench.count(published) == 1)
    with relaying(bench, broker.bootstrap, keep_s=0.01):
        wait_until(lambda: bench.count() == 0)
    assert len(broker.read_all(TOPIC)) == 1


def test_a_delayed_row_waits_and_holds_up_nobody(
    bench: OutboxBench, broker: EmbeddedBroker
) -> None:
    bench.add(TOPIC, b"1", b"in an hour", delay="1h")
    bench.add(TOPIC, b"1", b"tomorrow", deliver_at=datetime.now(UTC) + timedelta(days=1))
    bench.add(TOPIC, b"1", b"soon", delay=timedelta(seconds=0.6))
    bench.add(TOPIC, b"1", b"at once")
    assert [row.available_at is None for row in bench.rows()] == [False, False, False, True]
    with relaying(bench, broker.bootstrap):
        messages = arrived(broker, TOPIC, 2)
        wait_until(lambda: bench.count() == 2)
    assert [each.value() for each in messages] == [b"at once", b"soon"]


def test_columns_are_those_of_debezium(bench: OutboxBench) -> None:
    row_id = uuid.uuid4()
    with bench.engine.begin() as connection:
        bench.outbox.add(connection, TOPIC, "17", "paid", type="OrderPaid", id=row_id)
        bench.outbox.add(connection, TOPIC, b"a\x00\xff")
    first, second = bench.rows()
    assert (first.id, first.aggregatetype, first.aggregateid) == (row_id, TOPIC, "17")
    assert (first.type, first.payload) == ("OrderPaid", b"paid")
    assert (second.aggregateid, second.type, second.payload) == ("a\\x00\\xff", "", None)


def test_many_rows_are_inserted_in_their_order(bench: OutboxBench, broker: EmbeddedBroker) -> None:
    produces = [Produce(TOPIC, b"1", b"%d" % number) for number in range(10_000)]
    with bench.engine.begin() as connection:
        bench.outbox.insert(connection, bench.outbox.rows(produces))
    with relaying(bench, broker.bootstrap, batch=2_000):
        messages = arrived(broker, TOPIC, 10_000)
    assert [int(each.value() or b"") for each in messages] == list(range(10_000))


@pytest.mark.parametrize(
    ("more", "error"),
    [
        ({"delay": "1 fortnight"}, ValueError),
        ({"delay": -1}, ValueError),
        ({"deliver_at": datetime(2030, 1, 1)}, ValueError),  # noqa: DTZ001 - what is refused
        ({"delay": 1, "deliver_at": datetime(2030, 1, 1, tzinfo=UTC)}, ValueError),
        ({"type": "a\x00b"}, ValueError),
        ({"id": "17"}, ValueError),
        ({"value": 17}, TypeError),
    ],
)
def test_wrong_arguments_are_refused(
    tmp_path: Path, more: dict[str, object], error: type[Exception]
) -> None:
    from window_consumer.database import Outbox  # noqa: PLC0415 - the public name

    engine = sa.create_engine(f"sqlite:///{tmp_path / 'shop.db'}")
    outbox = Outbox(sa.MetaData())
    with engine.connect() as connection, pytest.raises(error):
        outbox.add(connection, TOPIC, **more)  # type: ignore[arg-type] # what is refused
    engine.dispose()


async def _add_and_cancel(url: str, bench: OutboxBench) -> str:
    engine = create_async_engine(url)
    async with AsyncSession(engine) as session, session.begin():
        row_id = await bench.outbox.add_async(session, TOPIC, b"1", b"from a coroutine")
        other = await bench.outbox.add_async(session, TOPIC, b"2", delay="1h")
    async with AsyncSession(engine) as session, session.begin():
        assert await bench.outbox.cancel_async(session, other)
    await engine.dispose()
    return str(row_id)


def test_a_coroutine_adds_rows_and_cancels_one(bench: OutboxBench) -> None:
    import asyncio  # noqa: PLC0415 - only here

    url = bench.url.replace("sqlite://", "sqlite+aiosqlite://")
    row_id = asyncio.run(_add_and_cancel(url, bench))
    assert [str(row.id) for row in bench.rows()] == [row_id]
