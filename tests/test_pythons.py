"""``.ci/pythons.py`` tries a wheel in the Pythons that it names."""

from __future__ import annotations

import platform
import subprocess
import sys
import zipfile
from pathlib import Path

SCRIPT = Path(__file__).parents[1] / ".ci" / "pythons.py"
OURS = ".".join(platform.python_version_tuple()[:2])


def test_a_python_that_is_not_there_is_named_and_is_no_failure(tmp_path: Path) -> None:
    wheel, not_tried = tmp_path / "shop-1-py3-none-any.whl", tmp_path / "not-tried"
    versions = ["3 :: Only", OURS, "3.998", "3.999"]
    lines = [f"Classifier: Programming Language :: Python :: {version}" for version in versions]
    with zipfile.ZipFile(wheel, "w") as archive:
        archive.writestr("shop-1.dist-info/METADATA", "\n".join(["Name: shop", *lines, "", ""]))
    command = [sys.executable, str(SCRIPT), str(wheel), str(not_tried)]
    ended = subprocess.run(command, capture_output=True, text=True, check=False)
    assert ended.returncode == 0, ended.stderr
    named = not_tried.read_text("utf-8").splitlines()
    assert [line.split()[:2] for line in named] == [["Python", "3.998"], ["Python", "3.999"]]
    assert ended.stderr.splitlines() == named
