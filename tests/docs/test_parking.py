"""The example of docs/parking.md, on the embedded broker."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import pytest

from tests.docs.pages import ROOT, blocks, module_of
from window_consumer.kafka.embedded import EmbeddedBroker

PAGE = ROOT / "docs/parking.md"
WAIT_S = 60.0
AMOUNTS = [10, 20, 30, 40, 50]


def test_the_example_charges_the_orders_of_a_customer_in_their_order(
    embedded: EmbeddedBroker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shop: dict[str, Any] = {"__name__": "shop"}
    exec(compile(module_of(PAGE), "shop.py", "exec"), shop)  # noqa: S102 - the page's own code
    file = tmp_path / "workers.yaml"
    file.write_text(blocks(PAGE, "yaml")[0].text)
    monkeypatch.setenv("KAFKA_BOOTSTRAP", embedded.bootstrap)
    embedded.create_topic("orders", 1)
    for amount in AMOUNTS:
        for customer in ("customer-1", "customer-2"):
            body = json.dumps({"customer": customer, "amount": amount}).encode()
            embedded.produce("orders", body, key=customer.encode())
    with shop["app"].start(file, start_timeout=WAIT_S):
        deadline = time.monotonic() + WAIT_S
        while len(shop["charged"]) < 2 * len(AMOUNTS):
            assert time.monotonic() < deadline, shop["charged"]
            time.sleep(0.02)
    assert shop["charged"] == [
        (customer, amount) for customer in ("customer-2", "customer-1") for amount in AMOUNTS
    ]
