"""Which topics a configuration needs, where several source topics have a say."""

from __future__ import annotations

from window_consumer.plan.ladder_topics import Model
from window_consumer.topics.plan import _states


def test_what_a_group_remembers_is_kept_as_safe_as_its_safest_source() -> None:
    models = {"shop": [Model(8, 1), Model(2, 3, min_in_sync="2"), Model(4, 2)], "empty": []}
    (state,) = _states(models)
    assert (state.new.name, state.new.partitions, state.new.replication) == ("shop.dlq.state", 1, 3)
    assert state.new.config == {"cleanup.policy": "compact", "min.insync.replicas": "2"}


def test_copies_never_get_a_limit_that_kafka_does_not_take() -> None:
    made = Model(1, 1, max_message_bytes=2**31 - 1).copies("shop.orders.dlq", 1.5)
    assert made.config["max.message.bytes"] == str(2**31 - 1)
    assert made.config["retention.ms"] == "1500"
