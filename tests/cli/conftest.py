from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
from attrs import frozen

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


@frozen
class Ended:
    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        return json.loads(self.out)


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
        done = subprocess.run(
            command(*arguments),
            cwd=project,
            env=None if env is None else {"PATH": "/usr/bin:/bin", **env},
            capture_output=True,
            text=True,
            timeout=timeout_s,
            check=False,
        )
        assert "Traceback" not in done.stderr
        return Ended(done.returncode, done.stdout, done.stderr)

    return run


def command(*arguments: str) -> Sequence[str]:
    return [sys.executable, "-m", "window_consumer", *arguments]
