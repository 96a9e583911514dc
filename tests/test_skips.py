"""In CI no test is skipped, except for parts that cannot be installed."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.conftest import MAY_BE_SKIPPED

SKIPS = f"""
import pytest

@pytest.fixture
def part():
    pytest.skip("it is missing")

def test_that_asks_for_a_part(part): ...

@pytest.mark.skipif(True, reason="today")
def test_that_is_marked(): ...

@pytest.mark.parametrize("reason", {sorted(MAY_BE_SKIPPED)!r})
def test_that_may_be_skipped(reason):
    pytest.skip(reason)
"""


@pytest.mark.parametrize(
    ("ci", "expected"), [("", {"skipped": 5}), ("true", {"skipped": 2, "errors": 3})]
)
def test_a_skip_fails_in_ci_alone(tmp_path: Path, ci: str, expected: dict[str, int]) -> None:
    (tmp_path / "conftest.py").write_text(
        "from tests.conftest import pytest_make_collect_report, pytest_runtest_makereport\n"
    )
    (tmp_path / "test_it.py").write_text(SKIPS)
    (tmp_path / "test_file.py").write_text(
        "import pytest\npytest.skip('no module', allow_module_level=True)\n"
    )
    options = ["-p", "no:cacheprovider", "--continue-on-collection-errors"]
    done = subprocess.run(
        [sys.executable, "-m", "pytest", *options, "."],
        cwd=tmp_path,
        env={**os.environ, "CI": ci, "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    last = done.stdout.splitlines()[-1].partition(" in ")[0]
    assert {what: int(count) for count, what in re.findall(r"(\d+) (\w+)", last)} == expected
