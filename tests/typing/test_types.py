"""The package is typed: right code passes mypy and pyright, wrong code is refused line by line."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from attrs import frozen
from mypy import api

HERE = Path(__file__).parent
EXAMPLES = HERE.parents[1] / "examples"
SHOP = [EXAMPLES / "shop.py", EXAMPLES / "send.py"]
"""README's example."""
ACCEPTED, REFUSED, REVEALED = (HERE / f"{name}.py" for name in ("accepted", "refused", "revealed"))


@frozen
class Said:
    """What a type checker says of a file."""

    wrong: list[int]
    """The lines about which it complains."""
    revealed: dict[int, str]
    """The types that it reveals, by their lines."""


Check = Callable[[Path], Said]


@pytest.fixture(scope="module", params=["mypy", "pyright"])
def check(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Check:
    """Ask a type checker about a file, each checker in turn."""
    directory = tmp_path_factory.mktemp("types")
    return by_mypy(directory) if request.param == "mypy" else by_pyright(directory)


def by_pyright(directory: Path) -> Check:
    """Ask pyright, in the form that brings its Node.js along: nothing is fetched to run it."""
    files = [ACCEPTED, REFUSED, REVEALED, *SHOP]
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

    def check(file: Path) -> Said:
        of_file = [
            (each["range"]["start"]["line"] + 1, each["severity"], each["message"])
            for each in found
            if each["file"] == str(file)
        ]
        wrong = {line for line, severity, _ in of_file if severity != "information"}
        revealed = {
            line: text.partition(" is ")[2]
            for line, severity, text in of_file
            if severity == "information"
        }
        return Said(sorted(wrong), revealed)

    return check


def by_mypy(cache: Path) -> Check:
    """Ask mypy."""

    def check(file: Path) -> Said:
        options = ["--strict", "--no-error-summary", f"--cache-dir={cache}"]
        said, trouble, _ = api.run([*options, str(file)])
        assert not trouble
        wrong = re.findall(r"^[^:\n]*:(\d+): error", said, re.MULTILINE)
        revealed = re.findall(r"^[^:\n]*:(\d+): note: Revealed type is (.*)$", said, re.MULTILINE)
        return Said(sorted({*map(int, wrong)}), {int(line): text for line, text in revealed})

    return check


@pytest.mark.parametrize("file", [ACCEPTED, REVEALED, *SHOP])
def test_code_of_users_is_accepted(check: Check, file: Path) -> None:
    assert check(file).wrong == []


def test_mistakes_of_users_are_refused_each_in_its_line(check: Check) -> None:
    lines = REFUSED.read_text("utf-8").splitlines()
    marked = [n for n, line in enumerate(lines, 1) if line.endswith("# refused")]
    assert check(REFUSED).wrong == marked


def test_decorated_functions_keep_their_signatures(check: Check) -> None:
    lines = enumerate(REVEALED.read_text("utf-8").splitlines(), 1)
    wanted = {n: line.partition("  # ")[2] for n, line in lines if line.startswith("reveal_type(")}
    found = {line: in_short(text) for line, text in check(REVEALED).revealed.items()}
    assert found == wanted


def in_short(text: str) -> str:
    """Return a type as either checker writes it, without modules and with what mypy leaves out."""
    text = re.sub(r"[\w.]+[.](\w)", r"\1", text.strip('"')).removeprefix("def ")
    text = (
        text.replace("def ", "")
        .replace("CoroutineType", "Coroutine")
        .replace("int = 3", "int = ...")
    )
    text = re.sub(r"int =(?= ?[,)])", "int = ...", text)
    text = re.sub(r"-> \((.* [|] .*)\)$", r"-> \1", text).replace(
        "((Record) -> object)", "(Record) -> object"
    )
    return text if ") -> " in text else f"{text} -> None"
