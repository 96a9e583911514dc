"""The page on migration: the page's faust agent, a worker and the agent again, in one group."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from attrs import define

from tests.docs.takeovers.group import Foreign, Group
from tests.parts import PartMissingError, faust, faust_directory
from window_consumer import App
from window_consumer.testing import DONE, TestApp

SHOP = """
import os
from pathlib import Path

import faust

class Order(faust.Record):
    id: int

async def charge(order):
    refused = str(order.id) in os.environ["REFUSED"].split(",")
    with Path(os.environ["CALLS"]).open("a") as calls:
        calls.write(f"{'refused' if refused else 'charged'} {order.id}\\n")
    if refused:
        raise ConnectionError("refused")
"""
"""The module that the agent calls; it runs with faust's packages, not with ours."""


@pytest.fixture(scope="module")
def installed() -> Path:
    try:
        faust()
    except PartMissingError as error:
        if os.environ.get("CI"):
            pytest.fail(f"CI has to have faust: {error}")
        pytest.skip(f"no faust: {error}")
    return faust_directory()


@pytest.fixture
def agent(installed: Path, group: Group, tmp_path: Path) -> Foreign:
    (tmp_path / "shop.py").write_text(SHOP)
    (tmp_path / "faust_agent.py").write_text(group.text("faust_agent.py"))
    # Without -S it would have our own packages as well.
    command = [sys.executable, "-S", "-m", "faust", "-A", "faust_agent"]
    command += ["worker", "--without-web"]
    return Foreign(command, tmp_path, {"PYTHONPATH": str(installed)})


def test_a_worker_takes_over_from_faust_and_gives_back(agent: Foreign, group: Group) -> None:
    """What the agent refused counts as done: the worker does not get it."""
    group.send(5)
    agent.run(0, 1, 2, 4, refused=[3])
    group.send(5)
    group.run_worker(5, 6, 7, 8, 9)
    group.send(2)
    agent.run(10, 11)


@define
class Order:
    """The page's ``shop.Order``, once faust is gone."""

    id: int


def test_a_handler_reads_what_faust_writes(installed: Path, tmp_path: Path) -> None:
    (tmp_path / "shop.py").write_text(SHOP)
    dump = "import shop; print(shop.Order(id=7).dumps(serializer='json').decode())"
    value = subprocess.run(
        [sys.executable, "-S", "-c", dump],
        cwd=tmp_path,
        env=os.environ | {"PYTHONPATH": str(installed)},
        capture_output=True,
        check=True,
    ).stdout
    assert set(json.loads(value)) == {"id", "__faust"}
    app, charged = App("shop"), []

    @app.handler("orders", group="shop-charge")
    def charge(order: Order) -> None:
        charged.append(order)

    with TestApp(app, {"workers": {"charge": {}}}) as worker:
        assert worker.send("orders", value).outcome == DONE
    assert charged == [Order(7)]
