from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.commands import DEADLINE_S, Commands


def python(directory: Path, *arguments: str, **env: str) -> None:
    """Run Python in a project, as its README says; a failure shows the output."""
    ended = subprocess.run(
        [sys.executable, *arguments],
        cwd=directory,
        env={**os.environ, "PYTHONDONTWRITEBYTECODE": "1", **env},
        capture_output=True,
        text=True,
        timeout=DEADLINE_S,
        check=False,
    )
    assert ended.returncode == 0, ended.stdout + ended.stderr


def run_its_tests(directory: Path) -> None:
    python(directory, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "no:benchmark")


@pytest.fixture
def shop(commands: Commands) -> Iterator[Commands]:
    """Commands in a new project."""
    ended = commands.run("init", "My Shop")
    assert ended.code == 0, ended.said
    with Commands(commands.directory / "My Shop") as shop:
        yield shop
