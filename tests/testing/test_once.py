"""What a user's test sees of handlers with ``once`` and an outbox."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa
from attrs import define, field
from sqlalchemy.ext.asyncio import create_async_engine

from tests.testing.shops import config
from window_consumer import App, Fatal, PartialFailure, Produce, Record
from window_consumer.database import Once, Outbox
from window_consumer.testing import DEAD_LETTERED, DEDUPLICATED, DONE, RETRYING, TestApp

KINDS = ("function", "coroutine", "batch")


@define(slots=False)
class Shop:
    """A handler with ``once`` and an outbox, whose database outlives its runs."""

    url: str
    kind: str = "function"
    by: Callable[[Record], object] | None = None
    behave: Callable[[Record], object] = lambda _order: None
    delivery: str = "at_least_once"
    metadata: sa.MetaData = field(factory=sa.MetaData)

    def __attrs_post_init__(self) -> None:
        self.orders = sa.Table("placed", self.metadata, sa.Column("id", sa.String, unique=True))
        self.outbox = Outbox(self.metadata)
        self.engine = sa.create_engine(self.url)
        self.once = Once(self._own_engine(), outbox=self.outbox, by=self.by)
        self.metadata.create_all(self.engine)
        self.once.tables.metadata.create_all(self.engine)

    def _own_engine(self) -> Any:
        if self.kind == "coroutine":
            return create_async_engine(self.url.replace("sqlite:", "sqlite+aiosqlite:"))
        return self.engine

    def run(self) -> TestApp:
        app = App("shop")
        retry = {"attempts": 2, "backoff": "1s..1s"}
        worker = {"group": "shop", "delivery": self.delivery, "retry": retry}
        if self.kind == "batch":
            app.batch_handler("orders", name="place", once=self.once)(self.place_all)
        elif self.kind == "coroutine":
            app.handler("orders", name="place", once=self.once)(self.place_async)
        else:
            app.handler("orders", name="place", once=self.once)(self.place)
        return TestApp(app, config(place=worker), topics={"orders": 1})

    def place(self, order: Record) -> Produce:
        order.session.execute(sa.insert(self.orders).values(id=order.id))
        self.behave(order)
        return Produce("placed", order.key, order.value)

    async def place_async(self, order: Record) -> Produce:
        await order.session.execute(sa.insert(self.orders).values(id=order.id))
        self.behave(order)
        return Produce("placed", order.key, order.value)

    def place_all(self, orders: list[Record]) -> list[Produce]:
        failed = []
        for order in orders:
            try:
                self.behave(order)
            except Exception as error:
                failed.append((order, error))
        if failed:
            raise PartialFailure(failed)
        values = [{"id": order.id} for order in orders]
        orders[0].session.execute(sa.insert(self.orders), values)
        return [Produce("placed", order.key, order.value) for order in orders]

    def count(self, table: sa.Table) -> int:
        with self.engine.connect() as connection:
            return int(connection.scalar(sa.select(sa.func.count()).select_from(table)) or 0)


ShopOf = Callable[..., Shop]


@pytest.fixture
def shop_of(tmp_path: Path) -> Iterator[ShopOf]:
    shops: list[Shop] = []

    def make(kind: str = "function", **more: Any) -> Shop:
        shops.append(Shop(f"sqlite:///{tmp_path / 'shop.db'}", kind, **more))
        return shops[-1]

    yield make
    for shop in shops:
        shop.engine.dispose()
        if shop.kind == "coroutine":
            asyncio.run(shop.once.engine().dispose())  # type: ignore[arg-type] # it is asynchronous


@pytest.mark.parametrize("kind", KINDS)
def test_a_repetition_is_deduplicated_without_a_call(shop_of: ShopOf, kind: str) -> None:
    shop = shop_of(kind)
    with shop.run() as wc_app:
        first = wc_app.send("orders", "1", key="c", headers={"wc-id": "order-1"})
        again = wc_app.send("orders", "1", key="c", headers={"wc-id": "order-1"})
        wc_app.advance("5s")
        assert (first.outcome, len(first.calls)) == (DONE, 1)
        assert (again.outcome, again.calls, again.attempts, again.error) == (
            DEDUPLICATED,
            [],
            0,
            None,
        )
        assert wc_app.deduplicated == [again.of()]
        assert wc_app.processed == [first.of()]
    assert shop.count(shop.orders) == 1


@pytest.mark.parametrize("kind", KINDS)
def test_after_a_crash_the_same_record_is_deduplicated_and_its_call_stays(
    shop_of: ShopOf, kind: str
) -> None:
    with shop_of(kind).run() as wc_app:
        result = wc_app.send("orders", "1")
        wc_app.run_until_settled()
        wc_app.crash()
        wc_app.run_until_settled()
        assert (result.outcome, len(result.calls)) == (DEDUPLICATED, 1)
        assert result.produced == [Produce("placed", None, "1")]


@pytest.mark.parametrize("kind", ["function", "coroutine"])
def test_results_of_exactly_once_go_to_the_outbox_and_survive_an_aborted_transaction(
    shop_of: ShopOf, kind: str
) -> None:
    shop = shop_of(kind, delivery="exactly_once")
    crashes = [True]

    def behave(order: Record) -> None:
        if order.value == b"bad":
            raise Fatal("no such customer")
        if order.value == b"last" and crashes.pop():
            crashes.append(False)
            wc_app.crash()  # the transaction with dead letter and offsets is open

    shop.behave = behave
    with shop.run() as wc_app:
        good, bad, last = wc_app.send_many("orders", ["good", "bad", "last"])
        wc_app.run_until_settled()
        assert (good.outcome, len(good.calls)) == (DEDUPLICATED, 1)
        assert (bad.outcome, len(bad.calls)) == (DEAD_LETTERED, 2)
        assert (last.outcome, len(last.calls)) == (DONE, 2)
        assert [each.value for each in wc_app.dead_letters] == [b"bad"]
    assert (shop.count(shop.orders), shop.count(shop.outbox.table)) == (2, 2)


def test_connections_of_every_process_are_closed_at_the_end(shop_of: ShopOf) -> None:
    shop = shop_of("coroutine")
    open_now: set[int] = set()
    pool = shop.once.engine().sync_engine  # type: ignore[union-attr] # it is asynchronous
    sa.event.listen(pool, "connect", lambda made, _record: open_now.add(id(made)))
    sa.event.listen(pool, "close", lambda made, _record: open_now.remove(id(made)))
    with shop.run() as wc_app:
        wc_app.send("orders", "1")
        wc_app.crash()
        wc_app.crash()
        assert len(open_now) == 3
    assert not open_now


@pytest.mark.parametrize("kind", KINDS)
def test_rows_of_the_outbox_are_what_was_produced(shop_of: ShopOf, kind: str) -> None:
    shop = shop_of(kind)
    with shop.run() as wc_app:
        results = wc_app.send_many("orders", ["1", "2"], key="c")
        wc_app.run_until_settled()
        rows = [Produce("placed", "c", "1"), Produce("placed", "c", "2")]
        assert wc_app.produced == rows
        if kind == "batch":  # of a batch, each record shows them all, as without an outbox
            assert [each.produced for each in results] == [rows, rows]
        else:
            assert [each.produced for each in results] == [[row] for row in rows]
    assert shop.count(shop.outbox.table) == 2


def test_rows_that_a_handler_adds_itself_come_before_its_results(shop_of: ShopOf) -> None:
    shop = shop_of()

    def remind(order: Record) -> None:
        shop.outbox.add(order.session, "reminders", order.key, "pay!", delay="30m")

    shop.behave = remind
    with shop.run() as wc_app:
        result = wc_app.send("orders", "1", key="c")
        assert result.produced == [Produce("reminders", "c", "pay!"), Produce("placed", "c", "1")]


@pytest.mark.parametrize("kind", KINDS)
def test_what_is_rolled_back_was_not_produced(shop_of: ShopOf, kind: str) -> None:
    shop = shop_of(kind)
    failing = True

    def fail(order: Record) -> None:
        if order.value == b"2" and failing:
            raise ConnectionError

    shop.behave = fail
    with shop.run() as wc_app:
        good, bad = wc_app.send_many("orders", [1, 2])
        wc_app.advance("100ms")
        assert (good.outcome, bad.outcome, bad.produced) == (DONE, RETRYING, [])
        assert wc_app.produced == [Produce("placed", None, "1")]
        failing = False
        wc_app.run_until_settled()
        assert (bad.outcome, bad.attempts) == (DONE, 2)
        assert wc_app.produced == [Produce("placed", None, "1"), Produce("placed", None, "2")]


@pytest.mark.parametrize("kind", KINDS)
def test_a_second_run_has_other_ids_in_the_same_database(shop_of: ShopOf, kind: str) -> None:
    seen = set()
    for _ in range(2):
        shop = shop_of(kind)
        with shop.run() as wc_app:
            results = wc_app.send_many("orders", ["1", "2"])
            wc_app.run_until_settled()
            assert [each.outcome for each in results] == [DONE, DONE]
            seen |= {each.record.id for each in results}
    assert len(seen) == shop.count(shop.orders) == 4


def test_a_second_run_may_use_the_same_business_ids(shop_of: ShopOf) -> None:
    for _ in range(2):
        with shop_of(by=lambda order: order.value).run() as wc_app:
            first = wc_app.send("orders", {"order": 17})
            again = wc_app.send("orders", {"order": 17})
            assert (first.outcome, again.outcome) == (DONE, DEDUPLICATED)


def test_a_record_shows_its_id_where_it_was_sent_and_where_it_is_handled(shop_of: ShopOf) -> None:
    shop = shop_of()
    seen = []
    shop.behave = lambda order: seen.append(order.id)
    with shop.run() as wc_app:
        given = wc_app.send("orders", "1", headers={"wc-id": "order-1"})
        own = wc_app.send("orders", "2")
    assert seen == [given.record.id, own.record.id]
    assert seen[0] == "order-1"
    assert seen[1].startswith("orders/0/1")
