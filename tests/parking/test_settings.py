"""Where parking has a meaning, and which topics it needs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.commands import Commands
from tests.plans import from_shell
from window_consumer import App, Record
from window_consumer.model.errors import ConfigError

LEVELS = ["10s"]
FOLLOWING = {"on_failure": "park", "levels": LEVELS, "park": {"on_dead": "follow"}}


def written(folder: Path, retry: dict[str, Any], ordering: str = "key") -> Path:
    worker = {"group": "g", "topics": ["orders"], "ordering": ordering, "retry": retry}
    kafka = {"bootstrap.servers": "localhost:1"}
    file = folder / "workers.yaml"
    file.write_text(yaml.safe_dump({"kafka": kafka, "workers": {"charge": worker}}))
    return file


@pytest.mark.parametrize(
    ("ordering", "retry", "key"),
    [
        ("unordered", {"on_failure": "park", "levels": LEVELS}, "on_failure"),
        ("partition", {"on_failure": "park", "levels": LEVELS}, "on_failure"),
        ("key", {"on_failure": "park"}, "on_failure"),
        ("key", {"on_failure": "overtake", "park": {"max_keys": 5}}, "park"),
        ("key", {"on_failure": "block", "park": {"on_dead": "follow"}}, "park"),
        ("key", {**FOLLOWING, "when_spent": "drop"}, "park.on_dead"),
        ("key", {**FOLLOWING, "when_spent": "stop"}, "park.on_dead"),
    ],
)
def test_it_is_refused_where_it_has_no_meaning(
    ordering: str, retry: dict[str, Any], key: str, tmp_path: Path
) -> None:
    app = App("shop")

    @app.handler("orders")
    def charge(_order: Record) -> None:
        """Do nothing."""

    with pytest.raises(ConfigError, match=f"workers.charge.retry.{key}"):
        app.plan(written(tmp_path, retry, ordering))


def test_it_is_refused_for_batches(tmp_path: Path) -> None:
    app = App("shop")

    @app.batch_handler("orders")
    def charge(_orders: list[Record]) -> None:
        """Do nothing."""

    with pytest.raises(ConfigError, match="batch handler"):
        app.plan(written(tmp_path, {"on_failure": "park", "levels": LEVELS}))


def test_the_plan_has_the_park_topic_and_says_that_it_is_read(commands: Commands) -> None:
    written(commands.directory, {"on_failure": "park", "levels": LEVELS})
    sizes = ("--partitions", "6", "--replication-factor", "3")
    planned = commands.run("topics", "plan", *sizes, "--principal", "User:shop")
    assert planned.code == 0, planned.said
    printed = from_shell(planned.out)
    assert printed.topics["g.orders.park"].partitions == 6
    for_park = [each for each in printed.acls if "g.orders.park".startswith(each.name)]
    assert {"Read", "Write"} <= {each.operation for each in for_park if each.kind == "topic"}
