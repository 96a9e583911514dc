"""The recipe for an image: it fits the project, and runs without root and without a shell."""

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import Sequence

from tests.commands import Commands
from tests.docs.pages import ROOT, blocks

PAGE = ROOT / "docs/container.md"
FILE = ROOT / "examples/Dockerfile"
IGNORED = ROOT / "examples/Dockerfile.dockerignore"


def stages() -> Sequence[Sequence[tuple[str, str]]]:
    """Return the instructions of each stage with their arguments."""
    found: list[list[tuple[str, str]]] = []
    for line in FILE.read_text("utf-8").splitlines():
        if not line or line.startswith("#"):
            continue
        name, _, arguments = line.partition(" ")
        if name == "FROM":
            found.append([])
        found[-1].append((name, arguments))
    return found


def arguments(stage: Sequence[tuple[str, str]], instruction: str) -> list[str]:
    return [given for name, given in stage if name == instruction]


def copied() -> list[str]:
    """Return what is copied from the checkout."""
    return [
        source
        for stage in stages()
        for given in arguments(stage, "COPY")
        if not given.startswith("--from=")
        for source in given.split()[:-1]
    ]


def test_the_page_shows_the_file() -> None:
    (shown,) = blocks(PAGE, "dockerfile")
    assert shown.text == FILE.read_text("utf-8")


def test_the_image_has_no_build_tools_and_no_root() -> None:
    build, image = stages()
    assert arguments(build, "RUN")
    assert not arguments(image, "RUN")
    (user,) = arguments(image, "USER")
    assert all(int(number) > 0 for number in user.split(":"))
    assert image.index(("USER", user)) > max(
        number for number, (name, _) in enumerate(image) if name == "COPY"
    )


def test_both_stages_have_the_same_small_python_which_the_wheel_is_tested_on() -> None:
    bases = {arguments(stage, "FROM")[0].split()[0] for stage in stages()}
    (version,) = {re.fullmatch(r"python:([\d.]+)-slim", base)[1] for base in bases}  # type: ignore[index] # None fails
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    assert f"Programming Language :: Python :: {version}" in project["classifiers"]


def test_what_is_copied_is_there_and_reaches_the_build() -> None:
    kept = {line[1:] for line in IGNORED.read_text("utf-8").splitlines() if line[:1] == "!"}
    for source in copied():
        assert (ROOT / source).exists(), source
    assert set(copied()) == kept


def test_what_a_wheel_is_made_of_is_copied() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))
    wheel = project["tool"]["hatch"]["build"]["targets"]["wheel"]["packages"]
    needed = {
        "hatch_build.py",
        *wheel,
        "README.md",  # hatch_build.py reads it
        *project["project"]["license-files"],
    }
    assert needed <= set(copied())


def test_the_worker_is_the_process_that_gets_the_signal(commands: Commands) -> None:
    _, image = stages()
    (program,) = arguments(image, "ENTRYPOINT")
    (given,) = arguments(image, "CMD")
    assert json.loads(program) == ["window-consumer"]
    subcommand, application = json.loads(given)
    assert subcommand == "run"
    for name in ("shop.py", "workers.yaml"):
        (commands.directory / name).write_text((ROOT / "examples" / name).read_text("utf-8"))
    assert commands.run("check", application).code == 0


def test_the_page_is_short() -> None:
    assert len(PAGE.read_text("utf-8").split()) <= 600
