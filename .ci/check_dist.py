"""Check a built sdist and wheel: ``check_dist.py DIRECTORY``."""

from __future__ import annotations

import os
import re
import sys
import tarfile
import zipfile
from collections.abc import Iterator, Sequence
from email.parser import Parser
from pathlib import Path

ROOT = Path(__file__).parents[1]
PACKAGES = (ROOT / "window_consumer", ROOT / "pytest_window_consumer")
IN_SDIST = (
    *("pyproject.toml", "hatch_build.py", "README.md", "LICENSE", "CHANGELOG.md"),
    "tests/conftest.py",
)
URLS = {"Homepage", "Source", "Documentation", "Changelog", "Issues"}


def sources() -> set[str]:
    """Return the files of the packages, which wheel and sdist must contain."""
    found = (path for package in PACKAGES for path in package.rglob("*") if path.is_file())
    return {str(path.relative_to(ROOT)) for path in found if "__pycache__" not in path.parts}


def wrong_in_wheel(wheel: Path) -> Iterator[str]:
    """Yield files that a wheel lacks, or should not contain."""
    with zipfile.ZipFile(wheel) as archive:
        names = set(archive.namelist())
        (metadata,) = [name for name in names if name.endswith(".dist-info/METADATA")]
        fields = Parser().parsestr(archive.read(metadata).decode())
        (entries,) = [name for name in names if name.endswith(".dist-info/entry_points.txt")]
        points = archive.read(entries).decode()
    installed = {name for name in names if ".dist-info/" not in name}
    yield from (f"{name} is missing" for name in sorted(sources() - installed))
    yield from (f"{name} does not belong there" for name in sorted(installed - sources()))
    if "window_consumer/py.typed" not in names:
        yield "py.typed is missing: type checkers would not look at the package"
    if not any(name.endswith("/LICENSE") for name in names):
        yield "the license is missing"
    if "[pytest11]" not in points:
        yield "pytest would not find the plugin: there is no entry point pytest11"
    for field, expected in (
        ("Name", "window-consumer"),
        ("License-Expression", "Apache-2.0"),
        ("Requires-Python", ">=3.11"),
        ("Description-Content-Type", "text/markdown"),
    ):
        if fields[field] != expected:
            yield f"{field} is {fields[field]!r}, not {expected!r}"
    yield from wrong_addresses(fields.get_all("Project-URL", []))
    yield from wrong_links(fields.get_payload())


def wrong_addresses(lines: Sequence[str]) -> Iterator[str]:
    """Yield problems of the project's addresses, see hatch_build.py."""
    repository = os.environ.get("WINDOW_CONSUMER_REPOSITORY")
    found = dict(line.split(", ", 1) for line in lines)
    if repository and found.keys() != URLS:
        yield f"its addresses are {sorted(found)}, not {sorted(URLS)}"
    for label, address in found.items():
        if repository and not address.startswith(repository):
            yield f"{label} is {address!r}, not below {repository!r}"


def wrong_links(description: str) -> Iterator[str]:
    """Yield links of the README that would be broken on a package index, see hatch_build.py."""
    if not description.startswith("# "):
        yield "its long description is not the README"
    if os.environ.get("WINDOW_CONSUMER_REPOSITORY"):
        links = re.findall(r"\]\(([^)\s]+)\)", description)
        yield from (f"the README's link {each} is relative" for each in links if "://" not in each)


def wrong_in_sdist(sdist: Path) -> Iterator[str]:
    """Yield files that an sdist lacks: it must suffice to build the wheel and run the tests."""
    with tarfile.open(sdist) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}
    yield from (f"{name} is missing" for name in sorted({*sources(), *IN_SDIST} - names))


def main(directory: Path) -> int:
    """Check the one sdist and the one wheel of a directory."""
    (wheel,) = directory.glob("*.whl")
    (sdist,) = directory.glob("*.tar.gz")
    wrong = [
        *(f"{wheel.name}: {each}" for each in wrong_in_wheel(wheel)),
        *(f"{sdist.name}: {each}" for each in wrong_in_sdist(sdist)),
    ]
    for each in wrong:
        sys.stderr.write(f"{each}\n")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
