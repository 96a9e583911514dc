"""The transactional.id of a worker's process, and where it is another one at each start."""

from __future__ import annotations

import pytest

from window_consumer.kafka.settings.transactions import (
    is_drawn,
    transaction_settings,
    transactional_id,
)


def test_the_id_names_group_worker_host_and_process() -> None:
    assert transactional_id("shop", "charge", {}, "shop-0", "") == "shop-charge-shop-0-1"
    member = {"group.instance.id": "east"}
    assert transactional_id("shop", "charge", member, "shop-0", "2") == "shop-charge-east-2"


@pytest.mark.parametrize(
    ("host", "drawn"),
    [
        ("shop-7d9f8b6c54-x2x1z", True),
        ("0a1b2c3d4e5f", True),
        ("shop-0", False),
        ("db-east", False),
    ],
)
def test_a_host_name_of_a_deployment_or_of_docker_is_drawn(host: str, *, drawn: bool) -> None:
    assert is_drawn({}, host) is drawn
    assert not is_drawn({"group.instance.id": "a"}, host)


def test_a_user_may_choose_how_long_a_transaction_may_take() -> None:
    settings = transaction_settings({"transaction.timeout.ms": 30_000}, "charge", "a")
    assert (settings["transaction.timeout.ms"], settings["transactional.id"]) == (30_000, "a")
