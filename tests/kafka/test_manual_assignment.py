"""A reader of all partitions whose client has lost its cluster."""

from __future__ import annotations

import logging
from typing import Any

from tests.conformance.reader import Reader
from window_consumer.kafka.client_log import ClientLog
from window_consumer.kafka.cluster import Cluster
from window_consumer.kafka.embedded import EmbeddedBroker, NewRecord
from window_consumer.kafka.settings import ConsumerNeeds, admin_settings
from window_consumer.kafka.source import KafkaSource
from window_consumer.kafka.watchdogs.client import ClientWatchdog
from window_consumer.model.record import TopicPartition

LOG = ClientLog(logging.getLogger("window_consumer.manual"))
READ, PAUSED, UNREAD = (TopicPartition("prices", number) for number in range(3))


class ToldWatchdog(ClientWatchdog):
    """Believes what the test says."""

    lost = False

    def is_lost(self, client: Any) -> bool:
        del client
        lost, ToldWatchdog.lost = ToldWatchdog.lost, False
        return lost


def test_a_new_client_continues_where_the_lost_one_was(embedded: EmbeddedBroker) -> None:
    embedded.create_topic("prices", 3)
    cluster = Cluster(admin_settings(embedded.client_settings(), "prices"), LOG)
    needs = ConsumerNeeds(None, "prices", ordered=False, memory=2**26)
    source = KafkaSource(embedded.client_settings(), needs, cluster, LOG, ToldWatchdog)
    reader = Reader(source)
    reader.begin = lambda names: {name: None if name == UNREAD else 0 for name in names}
    embedded.fill("prices", [NewRecord(b"1", partition=name.partition) for name in (READ, PAUSED)])
    reader.join("prices")
    reader.read(READ, 1)
    reader.read(PAUSED, 1)
    source.pause([PAUSED])
    ToldWatchdog.lost = True
    reader.turn()
    assert not ToldWatchdog.lost
    embedded.fill(
        "prices", [NewRecord(b"2", partition=name.partition) for name in (READ, PAUSED, UNREAD)]
    )
    assert reader.read(READ, 2) == [0, 1]
    assert reader.offsets(PAUSED) == [0]
    assert reader.offsets(UNREAD) == []
    source.seek(PAUSED, 1)
    source.seek(UNREAD, 0)
    assert (reader.read(PAUSED, 2), reader.read(UNREAD, 1)) == ([0, 1], [0])
    assert reader.reported("assigned") == [frozenset([READ, PAUSED, UNREAD])]
    assert reader.reported("lost") == reader.reported("revoked") == []
    source.close(20.0)
