"""What a member on the fake broker is told of its commits."""

from __future__ import annotations

from tests.conformance.reader import Reader
from window_consumer.model.errors import CommitFailedError
from window_consumer.model.protocols import Commit
from window_consumer.model.record import TopicPartition
from window_consumer.testing.fakes.broker import FakeBroker
from window_consumer.testing.fakes.group import RefusedCommit

GROUP = "shop"
ORDERS = TopicPartition("orders", 0)


def test_only_the_answer_to_the_last_commit_of_a_partition_is_reported() -> None:
    broker = FakeBroker()
    broker.create_topic("orders")
    source = broker.source(GROUP)
    reader = Reader(source).join("orders")
    source.answers_held = True
    source.commit([Commit(ORDERS, 1, "")])
    reader.turn()
    broker.group(GROUP).commit_fault = lambda _: RefusedCommit(CommitFailedError("loading"))
    source.commit([Commit(ORDERS, 2, "")])
    reader.turn()
    source.answers_held = False
    reader.turn()
    assert [str(answer) for answer in reader.answers[ORDERS]] == ["loading"]
