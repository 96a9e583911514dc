"""The package is typed: right code passes ``mypy --strict``, wrong code is refused line by line."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import pytest
from mypy import api

HERE = Path(__file__).parent
EXAMPLES = HERE.parents[1] / "examples"


Check = Callable[[Path], list[int]]


@pytest.fixture(scope="module")
def wrong_lines(tmp_path_factory: pytest.TempPathFactory) -> Check:
    """Return the lines about which mypy complains."""
    cache = tmp_path_factory.mktemp("mypy")

    def check(file: Path) -> list[int]:
        options = ["--strict", "--no-error-summary", f"--cache-dir={cache}"]
        said, trouble, _ = api.run([*options, str(file)])
        assert not trouble
        found = re.findall(r"^[^:\n]*:(\d+): error", said, re.MULTILINE)
        return sorted({int(line) for line in found})

    return check


@pytest.mark.parametrize("file", [HERE / "accepted.py", EXAMPLES / "shop.py"])
def test_code_of_users_is_accepted(wrong_lines: Check, file: Path) -> None:
    assert wrong_lines(file) == []


def test_mistakes_of_users_are_refused_each_in_its_line(wrong_lines: Check) -> None:
    file = HERE / "refused.py"
    lines = file.read_text("utf-8").splitlines()
    marked = [n for n, line in enumerate(lines, 1) if line.endswith("# refused")]
    assert wrong_lines(file) == marked
