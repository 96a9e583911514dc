"""The package is typed: right code passes mypy and pyright, wrong code is refused line by line."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from mypy import api

HERE = Path(__file__).parent
EXAMPLES = HERE.parents[1] / "examples"


Check = Callable[[Path], list[int]]


@pytest.fixture(scope="module", params=["mypy", "pyright"])
def wrong_lines(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Check:
    """Return the lines about which a type checker complains, each checker in turn."""
    directory = tmp_path_factory.mktemp("types")
    return by_mypy(directory) if request.param == "mypy" else by_pyright(directory)


def by_pyright(directory: Path) -> Check:
    """Ask pyright, in the form that brings its Node.js along: nothing is fetched to run it."""
    files = [HERE / "accepted.py", HERE / "refused.py", EXAMPLES / "shop.py"]
    settings = directory / "pyrightconfig.json"
    settings.write_text(
        json.dumps(
            {
                "include": [str(file) for file in files],
                "extraPaths": [str(HERE.parents[1])],
                "typeCheckingMode": "strict",
            }
        )
    )
    checker = Path(sys.executable).with_name("basedpyright")
    done = subprocess.run(
        [checker, "--outputjson", "--pythonpath", sys.executable, "-p", settings],
        capture_output=True,
        text=True,
        check=False,
    )
    said = json.loads(done.stdout)
    assert said["summary"]["filesAnalyzed"] == len(files)
    found = said["generalDiagnostics"]

    def check(file: Path) -> list[int]:
        lines = [each["range"]["start"]["line"] + 1 for each in found if each["file"] == str(file)]
        return sorted(set(lines))

    return check


def by_mypy(cache: Path) -> Check:
    """Ask mypy."""

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
