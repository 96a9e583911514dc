"""A partition that nobody leads holds up no other."""

from __future__ import annotations

from pathlib import Path

from tests.integration.shop import Shop
from window_consumer.kafka.embedded import EmbeddedBroker


def test_a_new_group_reads_the_others_and_that_one_when_it_has_a_leader(
    embedded: EmbeddedBroker, tmp_path: Path
) -> None:
    embedded.create_topic("orders", 2)
    orders = Shop(embedded.client_settings(), "orders", "shop", tmp_path)
    orders.produce(range(5), partition=0)
    orders.produce(range(15), partition=1)
    embedded.set_leader("orders", 0, None)
    with orders.running():
        orders.until_called(15)
        assert {call.partition for call in orders.calls} == {1}
        embedded.set_leader("orders", 0, 1)
        orders.until_called(20)
    assert sorted(orders.places()) == [(p, o) for p, n in ((0, 5), (1, 15)) for o in range(n)]
