"""What a test can do to an application: crashes, rebalances, lost sessions, refusing brokers."""

from __future__ import annotations

import pytest

from tests.testing.shops import PATIENT, Shop, config
from window_consumer import App, Record, UsageError
from window_consumer.testing import DEAD_LETTERED, DONE, RETRYING, TestApp


@pytest.fixture
def shop() -> Shop:
    return Shop()


def test_what_was_not_committed_runs_again_after_a_crash(shop: Shop) -> None:
    with shop.run() as wc_app:
        before = wc_app.send("orders", 1, partition=0)
        wc_app.advance("1s")
        after = wc_app.send("orders", 2, partition=0)
        assert wc_app.committed["orders", 0] == 1
        wc_app.crash()
        assert (len(before.calls), len(after.calls)) == (1, 2)
        assert after.outcome is DONE
        assert shop.seen == [1, 2, 2]


def test_a_crash_within_a_handler_ends_the_process_there() -> None:
    app = App("shop")
    seen: list[int] = []
    holder: list[TestApp] = []

    @app.handler("orders", group="shop")
    def charge(order: Record) -> None:
        seen.append(order.json())
        if len(seen) == 1:
            try:
                holder[0].crash()
            except Exception:
                pytest.fail("a handler that catches every Exception would survive its process")
            seen.append(-1)

    with TestApp(app, config(charge={})) as wc_app:
        holder.append(wc_app)
        result = wc_app.send("orders", 7)
        assert seen == [7, 7]
        assert (result.outcome, len(result.calls)) == (DONE, 2)


def test_a_process_that_crashes_on_and_on_ends_the_test() -> None:
    app = App("shop")
    holder: list[TestApp] = []

    @app.handler("orders", group="shop")
    def charge(_order: Record) -> None:
        holder[0].crash()

    with TestApp(app, config(charge={"retry": {"crash_attempts": 100}})) as wc_app:
        holder.append(wc_app)
        with pytest.raises(UsageError, match="crashed 100 times"):
            wc_app.send("orders", 7)


def test_a_record_that_crashes_the_process_leaves_and_the_others_are_handled() -> None:
    app = App("shop")
    calls: list[int] = []
    holder: list[TestApp] = []

    @app.handler("orders", group="shop")
    def charge(order: Record) -> None:
        calls.append(order.json())
        if order.json() == 7:
            holder[0].crash()

    with TestApp(app, config(charge={}), topics={"orders": 1}) as wc_app:
        holder.append(wc_app)
        wc_app.send_many("orders", range(20))
        (letter,) = wc_app.dead_letters
        assert (letter.reason, letter.value) == ("CRASHED", b"7")
        assert calls.count(7) == 5
        assert len(wc_app.processed) == 19


def test_a_rebalance_commits_what_is_done_and_begins_anew_with_what_is_not(shop: Shop) -> None:
    with shop.run(PATIENT, topics={"orders": 1}) as wc_app:
        done = wc_app.send("orders", 1)
        failed = wc_app.send("orders", '"fail"')
        wc_app.rebalance()
        assert wc_app.committed["orders", 0] == 1
        assert len(done.calls) == 1
        assert [call.attempt for call in failed.calls] == [1, 1]


@pytest.mark.parametrize("partitions", [1, 2, 5])
def test_a_rebalance_takes_every_partition_away(shop: Shop, partitions: int) -> None:
    with shop.run(PATIENT, topics={"orders": partitions}) as wc_app:
        failed = [wc_app.send("orders", '"fail"', partition=n) for n in range(partitions)]
        wc_app.rebalance()
        assert [len(each.calls) for each in failed] == [2] * partitions
        assert all(wc_app.send("orders", 1, partition=n).outcome is DONE for n in range(partitions))


def test_after_a_lost_session_what_was_not_committed_runs_again(shop: Shop) -> None:
    with shop.run() as wc_app:
        result = wc_app.send("orders", 1)
        wc_app.rebalance(lost=True)
        assert (len(result.calls), result.outcome) == (2, DONE)


def test_the_broker_can_be_made_to_fail(shop: Shop) -> None:
    with shop.run() as wc_app:
        limits = wc_app.broker.topics.by_name["shop.orders.dlq"]
        limits.max_message_bytes = 1
        result = wc_app.send("orders", '"poison"')
        assert result.outcome is RETRYING
        limits.max_message_bytes = 10**6
        wc_app.run_until_settled()
        assert result.outcome is DEAD_LETTERED


def test_leaving_drains_and_commits(shop: Shop) -> None:
    with shop.run(topics={"orders": 1}) as wc_app:
        wc_app.send("orders", 1)
        assert wc_app.committed["orders", 0] == 0
    assert wc_app.committed["orders", 0] == 1
