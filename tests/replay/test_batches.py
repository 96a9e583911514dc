"""The batches of a replay, without a broker."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from attrs import define

from window_consumer.model.errors import PublishFailedError
from window_consumer.model.offset_ranges import Span
from window_consumer.model.protocols import Copy
from window_consumer.model.record import Message, TopicPartition
from window_consumer.replay.copies import ReplayCopies, ReplayTarget
from window_consumer.replay.replay import Replay, ReplayRules
from window_consumer.testing.clock import ManualClock
from window_consumer.testing.fakes.log import FakeMessage

ORDERS = TopicPartition("orders", 0)
COPIES = ReplayCopies(ReplayTarget("orders", "", "shop.orders.retry.now", 1, "shop", "run"))


@define
class Log:
    """A log of so many records, and what is written to the entry topic."""

    records: int
    at: int = 0
    written: int = 0

    def read(self, max_records: int) -> Sequence[Message]:
        first, self.at = self.at, min(self.records, self.at + max_records)
        return [FakeMessage(ORDERS, each, b"k", b"v") for each in range(first, self.at)]

    def check_alone(self) -> None:
        """Nobody else is there."""

    def send(self, copies: Sequence[Copy]) -> None:
        self.written += len(copies)

    def acks(self) -> Mapping[int, PublishFailedError]:
        return {}


def test_with_a_rate_records_that_are_not_copied_cost_no_commits_and_no_time() -> None:
    log, clock = Log(20_000), ManualClock()
    commits: list[int] = []
    rules = ReplayRules(
        spans={0: Span(0, log.records)},
        copy=COPIES.copy,
        matches=lambda each: each.offset() % 1_000 == 0,
        rate=10,
    )
    replay = Replay(
        rules=rules,
        records=log,
        outlet=log,
        finish=lambda: commits.append(log.written),
        conclude=lambda: None,
        log_firsts=dict,
        clock=clock,
    )
    assert replay.run()
    assert (log.written, replay.counts.read, replay.counts.replayed) == (20, 20_000, 20)
    assert clock.now() <= 2.01
    most = max(b - a for a, b in zip([0, *commits], commits, strict=False))
    assert most <= 10 / 2, "a batch is half a second's copies"
    assert len(commits) <= 6
