"""What was put back is read for a report on many groups, whatever the cluster says to that."""

from __future__ import annotations

from confluent_kafka import Producer

from window_consumer.dlq.dead_letter import Position
from window_consumer.dlq.redrive_state import PutBack, Resolution, put_back
from window_consumer.engine.retry.retry_topics import state_topic
from window_consumer.kafka.client_log import ClientLog
from window_consumer.kafka.cluster import Cluster
from window_consumer.kafka.embedded import EmbeddedBroker
from window_consumer.kafka.settings import admin_settings
from window_consumer.plan.start_timeout import LOGGER

LOG = ClientLog(LOGGER)


def remember(broker: EmbeddedBroker, group: str, *offsets: int, dlq: str) -> None:
    """Write into a group's memory that these dead letters of partition 0 were put back."""
    cluster = Cluster(admin_settings(broker.client_settings(), "test"), LOG)
    topic_id = cluster.topics([dlq])[dlq].topic_id
    done = Resolution("redriven", 1, f"{group}.redrive.1", "orders", topic_id)
    producer = Producer(broker.client_settings())
    for copy in done.records(state_topic(group), [Position(dlq, 0, each) for each in offsets]):
        producer.produce(copy.topic, copy.value, copy.key)
    assert producer.flush(60) == 0


def test_what_all_groups_remember_is_read_or_that_of_some(embedded: EmbeddedBroker) -> None:
    for name in ("shop.orders.dlq", "shop.bills.dlq", "post.orders.dlq"):
        embedded.create_topic(name, 1)
    for group in ("shop", "post"):
        embedded.create_topic(state_topic(group), 1)
    remember(embedded, "shop", 3, 4, 7, dlq="shop.orders.dlq")
    remember(embedded, "shop", 1, dlq="shop.bills.dlq")
    remember(embedded, "post", 9, dlq="post.orders.dlq")
    of_post = [("post.orders.dlq", 0, 9, 9)]
    of_shop = [("shop.bills.dlq", 0, 1, 1), ("shop.orders.dlq", 0, 3, 4)]
    of_shop += [("shop.orders.dlq", 0, 7, 7)]
    client = embedded.client_settings()
    found = put_back(client, LOG, [])
    assert (sorted(found.runs), found.unknown) == (sorted(of_post + of_shop), None)
    assert sorted(put_back(client, LOG, ["shop"]).runs) == of_shop
    assert put_back(client, LOG, ["nobody"]) == PutBack()


def test_where_nothing_was_put_back_there_is_no_memory(embedded: EmbeddedBroker) -> None:
    embedded.create_topic("shop.orders.dlq", 1)
    assert put_back(embedded.client_settings(), LOG, []) == PutBack()


def test_a_report_stands_where_the_memory_cannot_be_read() -> None:
    found = put_back({"bootstrap.servers": "127.0.0.1:1"}, LOG, [], answer_s=0.5)
    assert found.runs == ()
    assert found.unknown is not None
    assert "127.0.0.1:1" in found.unknown
