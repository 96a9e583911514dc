"""Fences of once: the next owner of a partition waits for nobody who does not write any more."""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor, wait
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa
from attrs import define, field
from sqlalchemy.ext.asyncio import create_async_engine

from tests.database.once_shop import DEADLINE_S, OnceShop
from tests.database.pgbouncer import bouncing
from tests.logged import fields_of, lines_of
from tests.waiting import wait_until
from window_consumer import App, Record
from window_consumer.database import Once
from window_consumer.database.once.fence import FencedOut, FenceOwner, Fences, RaisedFences
from window_consumer.database.once.fence_locks import FenceLimits, FencePlace
from window_consumer.database.once.session import OnceSession
from window_consumer.database.once.tables import OnceTables
from window_consumer.kafka.embedded import ApiKey, EmbeddedBroker, ErrorCode, NewRecord
from window_consumer.model.log_events import LogEvent
from window_consumer.model.membership import MembershipProof
from window_consumer.model.record import AssignmentEpoch, Call

PLACE = FencePlace("shop", "orders", 0)
OVERLAPS_S = 15.0
LIMITS = FenceLimits(lock_timeout_s=2.0, idle_s=60.0)


@contextlib.contextmanager
def sharing(engine: sa.Engine, tables: OnceTables) -> Iterator[OnceSession]:
    """A transaction that has read a fence, as a call's has."""
    session = OnceSession(engine)
    session.begin_effects()
    assert tables.share_fence(session, PLACE, LIMITS) is not None
    try:
        yield session
    finally:
        session.end()


def raised(engine: sa.Engine, tables: OnceTables) -> int:
    session = OnceSession(engine)
    session.begin_effects()
    fence = tables.raise_fence(session, PLACE, LIMITS.lock_timeout_s)
    session.commit_effects()
    session.end()
    return fence


def test_a_fence_is_raised_although_calls_that_share_it_overlap_for_ever(
    shop_in_postgres: OnceShop,
) -> None:
    engine, tables = shop_in_postgres.engine, shop_in_postgres.once().tables
    assert raised(engine, tables) == 1

    def shared() -> contextlib.ExitStack:
        stack = contextlib.ExitStack()
        stack.enter_context(sharing(engine, tables))
        return stack

    with ThreadPoolExecutor(2) as threads:
        present = shared()
        raising = threads.submit(raised, engine, tables)
        deadline = time.monotonic() + OVERLAPS_S
        while not raising.done() and time.monotonic() < deadline:
            following = threads.submit(shared)
            wait([following], 0.2)  # it shares the fence by then, or queues for it
            present.close()
            present = following.result()
        is_raised = raising.done()
        present.close()
        assert raising.result() == 2
    assert is_raised


def test_who_set_a_bound_for_idle_transactions_keeps_it(shop_in_postgres: OnceShop) -> None:
    tables = shop_in_postgres.once().tables
    raised(shop_in_postgres.engine, tables)
    show = sa.text("SHOW idle_in_transaction_session_timeout")
    found = []
    for options in ("", "-c idle_in_transaction_session_timeout=7s"):
        engine = sa.create_engine(shop_in_postgres.url, connect_args={"options": options})
        with sharing(engine, tables) as session:
            found.append(session.scalar(show))
        engine.dispose()
    assert found == ["1min", "7s"]


@define
class HangingShop:
    """A worker in ``orders`` whose calls hang until its test ends, in threads or coroutines."""

    shop: OnceShop
    once: Once
    hung: set[int] = field(factory=set)
    """The partitions of calls that hang."""
    may_end: threading.Event = field(factory=threading.Event)

    def app(self, *, coroutines: bool) -> App:
        app = App("shop")

        def hang(order: Record) -> None:
            self.insert(order)
            assert self.may_end.wait(DEADLINE_S)

        async def hang_whatever_comes(order: Record) -> None:
            await order.session.run_sync(lambda _: None)
            await order.session.execute(self.statement(order))
            self.hung.add(order.partition)
            while not self.may_end.is_set():
                with contextlib.suppress(asyncio.CancelledError):
                    await asyncio.sleep(0.01)

        handler: Any = hang_whatever_comes if coroutines else hang
        app.handler("orders", group="shop", name="place", once=self.once)(handler)
        return app

    def insert(self, order: Record) -> None:
        order.session.execute(self.statement(order))
        self.hung.add(order.partition)

    def statement(self, order: Record) -> sa.Insert:
        return sa.insert(self.shop.orders).values(value=f"hung {order.text()}")


@pytest.mark.parametrize("way", ["direct", "pgbouncer", "coroutines"])
def test_an_abandoned_call_does_not_keep_the_next_owner_out(
    embedded: EmbeddedBroker,
    database: str,
    tmp_path: Path,
    way: str,
    caplog: pytest.LogCaptureFixture,
) -> None:
    embedded.create_topic("orders", 2)
    shop = OnceShop(embedded, tmp_path, database)
    values = [f"{number:02}" for number in range(20)]
    for partition in range(2):
        records = [NewRecord(each.encode(), b"k", partition=partition) for each in values]
        embedded.fill("orders", records)
    rules = {"ordering": "partition", "retry": {"on_failure": "block"}, "stop_timeout": "300ms"}
    file = shop.file(revoke_timeout="300ms", **rules)
    with contextlib.ExitStack() as beside:
        url = database
        if way == "pgbouncer":
            url = beside.enter_context(bouncing(database, tmp_path, 5))
        coroutines = way == "coroutines"
        engine: Any = create_async_engine(url) if coroutines else sa.create_engine(url)
        hanging = HangingShop(shop, shop.once(engine=engine, fenced=True))
        former = hanging.app(coroutines=coroutines).start(file, start_timeout=DEADLINE_S)
        dispose = (lambda: asyncio.run(engine.dispose())) if coroutines else engine.dispose
        # The last one comes first.
        for step in (shop.engine.dispose, dispose, former.wait, former.stop, hanging.may_end.set):
            beside.callback(step)
        wait_until(lambda: hanging.hung == {0, 1})
        successor = shop.app(shop.once(fenced=True))
        with successor.start(file, start_timeout=DEADLINE_S) as running:
            wait_until(lambda: running.counters["place"].processed == len(values))
        assert shop.placed == values
        ended = lines_of(caplog, LogEvent.ONCE_TRANSACTION_ENDED, topic="orders", offset=0)
        assert len(ended) == 1


def test_a_fence_that_waits_names_what_it_waits_for(
    shop_in_postgres: OnceShop, caplog: pytest.LogCaptureFixture
) -> None:
    shop = shop_in_postgres
    once = shop.once(fenced=True, lock_timeout="100ms")
    url = sa.make_url(shop.url).update_query_dict({"application_name": "somebody's console"})
    somebody = sa.create_engine(url)
    raised(somebody, once.tables)
    shop.fill("a")
    with sharing(somebody, once.tables) as session:
        pid = session.scalar(sa.text("SELECT pg_backend_pid()"))
        running = shop.start(once)
        wait_until(lambda: lines_of(caplog, LogEvent.ONCE_FENCE_WAITS))
    with running:
        wait_until(lambda: running.counters["place"].processed == 1)
    line = fields_of(caplog, LogEvent.ONCE_FENCE_WAITS)
    assert (line["worker"], line["topic"], line["partition"]) == ("place", "orders", 0)
    assert (line["backends"], line["applications"]) == ([pid], ["somebody's console"])
    assert 0.1 <= line["waited_s"] < DEADLINE_S
    assert shop.calls == [(0, 1)]
    somebody.dispose()


def test_who_has_lost_a_fence_raises_it_again_only_once_the_group_accepts_its_commit(
    shop: OnceShop,
) -> None:
    once = shop.once(fenced=True)
    fences: list[int] = []
    shop.behave = lambda order: fences.append(order.fence)
    shop.fill("first")
    with shop.start(once, commit_interval="500ms") as running:
        did = running.counters["place"]
        wait_until(lambda: did.processed == 1 and did.commits > 0)
        refusals = [ErrorCode.GROUP_AUTHORIZATION_FAILED] * 1_000
        shop.broker.push_request_errors(ApiKey.OFFSET_COMMIT, *refusals)
        table = once.tables.fences
        with shop.engine.begin() as connection:
            connection.execute(sa.update(table).where(table.c.topic == "orders").values(fence=7))
        shop.fill("late")
        wait_until(lambda: did.commit_failures >= 5)
        assert (did.processed, did.finished) == (1, 1)
        shop.broker.clear_request_errors(ApiKey.OFFSET_COMMIT)
        wait_until(lambda: did.processed == 2)
    assert (fences, shop.placed) == ([1, 8], ["first", "late"])


def test_a_worker_that_is_restarted_in_its_process_raises_its_fences_again(shop: OnceShop) -> None:
    once = shop.once(fenced=True)
    fences = Fences(once.tables, FenceOwner("place", "shop"), LIMITS, RaisedFences())

    def entered(membership: MembershipProof) -> int:
        call = Call()
        call.assignment = AssignmentEpoch(1, 0, membership)  # each Engine counts from 1
        session = OnceSession(shop.engine)
        try:
            return fences.enter(session, Record.of(message, call))
        finally:
            session.end()

    shop.fill("a")
    (message,) = shop.broker.read_all("orders")
    before, after = MembershipProof(), MembershipProof()
    assert [entered(before), entered(before), entered(after)] == [1, 1, 2]
    before.is_over = True
    with pytest.raises(FencedOut):
        entered(before)


def test_a_host_that_is_gone_loses_its_transaction_whatever_is_on_its_way(
    shop_in_postgres: OnceShop,
) -> None:
    engine = sa.create_engine(shop_in_postgres.url)
    shop_in_postgres.once(engine=engine)
    names = ("tcp_keepalives_idle", "tcp_keepalives_count", "tcp_user_timeout")
    with engine.connect() as connection:
        found = [connection.scalar(sa.text(f"SHOW {name}")) for name in names]
    assert found == ["30", "3", "60000"]
    engine.dispose()


def test_a_connection_without_a_name_gets_one_that_names_its_process(
    shop_in_postgres: OnceShop,
) -> None:
    shop = shop_in_postgres
    names = []
    for options in ({}, {"application_name": "shop"}):
        engine = sa.create_engine(shop.url, connect_args=options)
        shop.once(engine=engine)
        with engine.connect() as connection:
            names.append(connection.scalar(sa.text("SHOW application_name")))
        engine.dispose()
    assert names == [f"window-consumer {socket.gethostname()}:{os.getpid()}", "shop"]
