"""What partitions leave behind that are given up."""

from __future__ import annotations

from typing import Any

from tests.conformance.reader import Reader
from window_consumer.model.errors import CommitFailedError
from window_consumer.model.protocols import Commit, CommitResults
from window_consumer.model.record import TopicPartition
from window_consumer.runtime.partitions.final_commit import FinalCommits
from window_consumer.runtime.writing.outlet import SeparateWrites
from window_consumer.testing.fakes.broker import FakeBroker
from window_consumer.testing.fakes.group import RefusedCommit

GROUP = "shop"
ORDERS = TopicPartition("orders", 0)


class Failures:
    """Reports of which only the commits count."""

    def __init__(self) -> None:
        self.reported: list[CommitFailedError] = []

    def commits(self, results: CommitResults) -> None:
        self.reported += [error for error in results.values() if error is not None]


def test_a_commit_is_not_written_again_where_the_partition_is_given_up_meanwhile() -> None:
    broker = FakeBroker()
    broker.create_topic("orders")
    group = broker.group(GROUP)
    first = Reader(broker.source(GROUP)).join("orders")
    second = Reader(broker.source(GROUP))
    second.source.subscribe(["orders"], second)

    def refuse(_commit: Commit) -> RefusedCommit:
        group.rebalance(turn=True)
        return RefusedCommit(CommitFailedError("the request timed out"), written=True)

    group.commit_fault = refuse
    failures = Failures()
    reports: Any = failures
    nothing: Any = None
    first.within_poll = True
    FinalCommits(
        first.source, SeparateWrites(first.source, nothing, nothing), nothing, reports
    ).write([Commit(ORDERS, 1_039, "")])
    assert first.reported("revoked") == [{ORDERS}]
    assert [each.commit.next_offset for each in group.applied] == [1_039]
    assert len(failures.reported) == 1
