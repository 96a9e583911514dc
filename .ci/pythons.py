"""Test a wheel in the other Pythons that it names: ``pythons.py WHEEL NOT_TRIED``.

One that this machine does not have is named, on standard error and in the file NOT_TRIED.
"""

from __future__ import annotations

import platform
import re
import shutil
import subprocess
import sys
import tempfile
import zipfile
from email.parser import Parser
from pathlib import Path

from benchmarks.peers.environments import python_of

SMOKE = Path(__file__).parent / "smoke"


def named_by(wheel: Path) -> list[str]:
    """Return the versions in a wheel's classifiers, such as ``3.12``, without the one that runs."""
    with zipfile.ZipFile(wheel) as archive:
        (metadata,) = [name for name in archive.namelist() if name.endswith(".dist-info/METADATA")]
        fields = Parser().parsestr(archive.read(metadata).decode())
    lines = "\n".join(fields.get_all("Classifier", []))
    found = re.findall(r"^Programming Language :: Python :: (3\.\d+)$", lines, re.MULTILINE)
    ours = ".".join(platform.python_version_tuple()[:2])
    return [version for version in found if version != ours]


def attempt(python: str, wheel: Path) -> None:
    """Install a wheel in a separate environment, and run ``smoke``."""
    with tempfile.TemporaryDirectory(prefix="wc-python-") as directory:
        home = Path(directory) / "home"
        _do([python, "-m", "venv", str(home)], directory)
        theirs = str(home / "bin" / "python")
        _do([theirs, "-m", "pip", "install", "--quiet", str(wheel.resolve())], directory)
        work = shutil.copytree(SMOKE, Path(directory) / "smoke")
        strict = [theirs, "-W", "error"]
        _do([*strict, "smoke.py"], work)
        _do([*strict, "-m", "window_consumer", "check", "kinds:app"], work)


def _do(command: list[str], directory: Path | str) -> None:
    subprocess.run(command, cwd=directory, check=True)  # noqa: S603 - our own commands


def main(wheel: Path, not_tried: Path) -> int:
    """Try every installed Python; return 1 if the wheel fails in one."""
    for version in named_by(wheel):
        python = python_of(version)
        if python is None:
            line = f"Python {version} is not on this machine: the wheel was not tried in it\n"
            sys.stderr.write(line)
            with not_tried.open("a", encoding="utf-8") as file:
                file.write(line)
            continue
        try:
            attempt(python, wheel)
        except subprocess.CalledProcessError as error:
            sys.stderr.write(f"Python {version}: {error}\n")
            return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]), Path(sys.argv[2])))
