from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

from tests import fork_server
from tests.commands import Command, Ended

SHOP = """
from window_consumer import App, Record

app = App("shop", version="7")


class InvalidOrder(Exception):
    pass


@app.handler("orders")
def charge(order: Record) -> None:
    print(f"charged {order.offset}", flush=True)
"""

WORKERS = """
kafka:
  bootstrap.servers: 127.0.0.1:1
workers:
  charge:
    group: shop-charge
"""


Run = Callable[..., Ended]


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A directory with an application and its configuration."""
    (tmp_path / "shop.py").write_text(SHOP)
    (tmp_path / "workers.yaml").write_text(WORKERS)
    return tmp_path


@pytest.fixture
def window_consumer(project: Path) -> Run:
    """Run the command line in the project's directory until it ends."""

    def run(*arguments: str, env: Mapping[str, str] | None = None, timeout_s: float = 60) -> Ended:
        environment = os.environ if env is None else {"PATH": "/usr/bin:/bin", **env}
        command = Command(fork_server.start(arguments, project, environment))
        ended = command.wait(timeout_s)
        assert "Traceback" not in ended.err
        return ended

    return run
