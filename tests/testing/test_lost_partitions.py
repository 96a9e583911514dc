"""Partitions that are lost and come back: which records are handled again."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest
from attrs import evolve

from tests.logged import lines_of
from tests.testing.shops import config
from window_consumer import App, Record
from window_consumer.model.errors import CommitFailedError
from window_consumer.model.log_events import LogEvent
from window_consumer.model.protocols import Commit, CommittedOffset
from window_consumer.model.record import TopicPartition
from window_consumer.testing import TestApp
from window_consumer.testing.fakes.group import FakeGroup, RefusedCommit
from window_consumer.testing.fakes.source import FakeSource

ORDERS = TopicPartition("orders", 0)


class Shop:
    """A shop whose group takes no commit after the first ten records, and which loses all.

    Of the thirty records the eleventh has to wait for a second call.
    """

    def __init__(self, **worker: Any):
        self.calls: Counter[int] = Counter()
        app = App("shop")
        self.sent = 0

        @app.handler("orders", group="shop")
        def charge(order: Record) -> None:
            self.calls[order.offset] += 1
            if order.value == b"wait" and self.calls[order.offset] == 1:
                raise ConnectionError("database away")

        retry = {"attempts": 3, "backoff": "60s..60s", "on_failure": "overtake"}
        rules = {"retry": retry, **worker}
        self.app = TestApp(app, config(charge=rules), topics={"orders": 1})

    @property
    def group(self) -> FakeGroup:
        return self.app.broker.group("shop")

    def begin(self) -> None:
        """Ten records are committed; of the next twenty that had finished no commit says so."""
        self.app.send_many("orders", [b"x"] * 10)
        self.app.advance(1.0)
        assert self.group.committed(ORDERS).next_offset == 10
        self.group.commit_fault = lambda _commit: RefusedCommit(CommitFailedError("timed out"))
        self.app.send_many("orders", [b"wait"] + [b"x"] * 19)
        self.app.advance(1.0)
        assert self.group.committed(ORDERS).next_offset == 10

    def lose(self) -> None:
        """Let the session time out; the member has not noticed yet."""
        for member in self.group.members:
            assert isinstance(member, FakeSource)
            self.app.broker.evict(member)

    def come_back(self) -> None:
        self.lose()
        self.group.commit_fault = lambda _commit: None
        self.app.run_until_idle()

    def repeated(self) -> list[int]:
        return [offset for offset, calls in sorted(self.calls.items()) if calls > 1]


@pytest.fixture
def lines(caplog: pytest.LogCaptureFixture) -> Iterator[pytest.LogCaptureFixture]:
    with caplog.at_level(logging.INFO, "window_consumer"):
        yield caplog


def test_what_had_finished_is_not_handled_again_where_nobody_else_has_committed(
    lines: pytest.LogCaptureFixture,
) -> None:
    shop = Shop()
    with shop.app:
        shop.begin()
        shop.come_back()
        shop.app.run_until_settled()
        assert shop.repeated() == [10]
        assert sum(shop.calls.values()) == 31
        shop.app.advance(1.0)
        assert shop.group.committed(ORDERS).next_offset == 30
    found = lines_of(lines, LogEvent.PARTITION_REGAINED)
    assert 19 in [count for _, _, count, _ in (tuple(each.args or ()) for each in found)]


def test_it_is_not_handled_again_after_two_losses_either() -> None:
    shop = Shop()
    with shop.app:
        shop.begin()
        shop.lose()
        refused: list[Commit] = []

        def refuse_one(commit: Commit) -> RefusedCommit | None:
            if refused:
                return None
            refused.append(commit)
            shop.lose()
            return RefusedCommit(CommitFailedError("the coordinator does not know this member"))

        shop.group.commit_fault = refuse_one
        shop.app.run_until_settled()
        assert refused
        assert shop.repeated() == [10]
        shop.app.advance(1.0)
        assert shop.group.committed(ORDERS).next_offset == 30


def test_a_commit_that_arrived_without_an_answer_is_known_again() -> None:
    shop = Shop()
    with shop.app:
        shop.begin()
        shop.group.commit_fault = lambda _c: RefusedCommit(
            CommitFailedError("timed out"), written=True
        )
        shop.app.send_many("orders", [b"x"] * 5)
        shop.app.advance(1.0)
        shop.group.commit_fault = lambda _commit: RefusedCommit(CommitFailedError("timed out"))
        shop.app.send_many("orders", [b"x"] * 5)
        shop.come_back()
        shop.app.run_until_settled()
        assert shop.repeated() == [10]


@pytest.mark.parametrize("ordering", ["key", "partition"])
def test_an_ordered_worker_handles_again_what_is_not_committed(ordering: str) -> None:
    shop = Shop(ordering=ordering)
    with shop.app:
        shop.begin()
        finished = {offset for offset, calls in shop.calls.items() if offset >= 10}
        shop.come_back()
        shop.app.run_until_settled()
        assert set(shop.repeated()) == finished


@pytest.mark.parametrize(
    "entry",
    [
        pytest.param(lambda before: evolve(before, metadata=""), id="same offset"),
        pytest.param(lambda _before: CommittedOffset(5, ""), id="earlier offset"),
    ],
)
def test_everything_uncommitted_is_handled_again_where_somebody_else_has_committed(
    entry: Any,
) -> None:
    shop = Shop()
    with shop.app:
        shop.begin()
        moved = entry(shop.group.committed(ORDERS))
        shop.group.commit_fault = lambda _commit: None
        shop.lose()
        shop.app.broker.move_offset("shop", Commit(ORDERS, moved.next_offset, moved.metadata))
        shop.app.run_until_settled()
        assert shop.repeated() == list(range(moved.next_offset or 0, 30))


def test_a_topic_that_was_made_anew_is_handled_from_its_beginning() -> None:
    shop = Shop()
    with shop.app:
        shop.begin()
        shop.lose()
        shop.app.broker.remake_topic("orders", 1)
        shop.group.commit_fault = lambda _commit: None
        shop.calls.clear()
        shop.app.send_many("orders", [b"x"] * 30)
        shop.app.run_until_settled()
        assert shop.calls == Counter(range(30))
