"""The example of docs/broadcast.md: a cache that is complete when the process is ready."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.docs.pages import ROOT, blocks, module_of
from tests.waiting import wait_until
from window_consumer.kafka.embedded import EmbeddedBroker

PAGE = ROOT / "docs/broadcast.md"
WAIT_S = 60.0


@pytest.fixture
def shop() -> dict[str, Any]:
    found: dict[str, Any] = {"__name__": "shop"}
    exec(compile(module_of(PAGE), "shop.py", "exec"), found)  # noqa: S102 - the page's own code
    return found


def test_the_cache_is_complete_when_the_process_is_ready(
    shop: dict[str, Any], embedded: EmbeddedBroker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "workers.yaml"
    file.write_text(blocks(PAGE, "yaml")[0].text.replace("0.0.0.0:8080", "127.0.0.1:0"))
    monkeypatch.setenv("KAFKA_BOOTSTRAP", embedded.bootstrap)
    embedded.create_topic("prices", 4)
    for product, price in (("bread", 2), ("milk", 1), ("bread", 2.5), ("tea", 4), ("milk", None)):
        body = None if price is None else json.dumps({"price": price}).encode()
        embedded.produce("prices", body, key=product.encode())
    with shop["app"].start(file, start_timeout=WAIT_S) as running:
        (worker,) = running.workers
        wait_until(lambda: worker.outline().is_ready, WAIT_S, "it is ready")
        assert shop["prices"] == {"bread": 2.5, "tea": 4}


def test_the_test_of_the_page_passes(shop: dict[str, Any]) -> None:
    shop["test_a_new_process_has_all_prices"]()
