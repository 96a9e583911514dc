"""Ids that a traced producer gives to records."""

from __future__ import annotations

from window_consumer.kafka.traced_producer import new_id


def test_ids_are_in_the_order_of_time() -> None:
    ids = [new_id(now_ms) for now_ms in (1, 1_000, 1_700_000_000_000, 1_700_000_000_001)]
    assert ids == sorted(ids)
    assert new_id(5) != new_id(5)
