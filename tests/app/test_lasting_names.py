"""Workers with exactly once need a name that lasts: what is warned of before they start."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from window_consumer import App, Record
from window_consumer.app.limits.warnings import transaction_warnings

DRAWN = "shop-7d9f8b6c54-x2x1z"
"""The host name of a pod of a deployment."""
STATIC = {"kafka": {"group.instance.id": "east"}}


@pytest.mark.parametrize(
    ("host", "keys", "warns"),
    [
        (DRAWN, {"delivery": "exactly_once"}, True),
        (DRAWN, {"delivery": "exactly_once", **STATIC}, False),
        (DRAWN, {}, False),
        ("shop-0", {"delivery": "exactly_once"}, False),
    ],
)
def test_a_transactional_id_that_another_start_will_not_have_is_a_warning(
    tmp_path: Path, host: str, keys: dict[str, Any], *, warns: bool
) -> None:
    app = App("shop")

    @app.handler("orders", group="shop")
    def charge(_: Record) -> None:
        """Do nothing."""

    file = tmp_path / "workers.yaml"
    kafka = {"bootstrap.servers": "127.0.0.1:1"}
    file.write_text(json.dumps({"kafka": kafka, "workers": {"charge": keys}}))
    (worker,) = app.plan(file).workers
    found = list(transaction_warnings(worker, host))
    assert [host in each and "group.instance.id" in each for each in found] == [True] * warns
