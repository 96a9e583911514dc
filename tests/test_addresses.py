"""Where the project lives, in the wheel's metadata: nothing is invented."""

from __future__ import annotations

import subprocess
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

# Not part of any package; and mypy would need hatchling wherever it checks the tests.
hatch_build = import_module("hatch_build")


def addresses(root: Path) -> dict[str, str]:
    metadata: dict[str, Any] = {}
    hatch_build.Addresses(str(root), {}).update(metadata)
    found: dict[str, str] = metadata["urls"]
    return found


@pytest.fixture(autouse=True)
def unnamed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(hatch_build.VARIABLE, raising=False)


@pytest.mark.parametrize(
    "remote",
    [
        "https://forge.example/team/window-consumer",
        "https://forge.example/team/window-consumer.git\n",
        "https://user:secret@forge.example/team/window-consumer.git",
        "git@forge.example:team/window-consumer.git",
        "ssh://git@forge.example:2222/team/window-consumer.git",
    ],
)
def test_a_remote_has_a_page_without_what_is_secret(remote: str) -> None:
    assert hatch_build.web_address(remote) == "https://forge.example/team/window-consumer"


@pytest.mark.parametrize(
    "remote", ["", "/srv/window-consumer", "../origin", "host:path", "file:///x"]
)
def test_a_remote_without_a_page_has_none(remote: str) -> None:
    assert hatch_build.web_address(remote) == ""


def test_the_checkouts_origin_is_the_address(tmp_path: Path) -> None:
    for command in (["init", "-q"], ["remote", "add", "origin", "git@forge.example:team/it.git"]):
        subprocess.run(["git", "-C", str(tmp_path), *command], check=True)
    found = addresses(tmp_path)
    assert found.keys() == hatch_build.PAGES.keys()
    assert found["Changelog"] == "https://forge.example/team/it/blob/HEAD/CHANGELOG.md"


def test_without_an_address_there_is_none(tmp_path: Path) -> None:
    assert addresses(tmp_path) == {}


def test_the_variable_wins(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(hatch_build.VARIABLE, "https://forge.example/ours")
    assert addresses(tmp_path)["Issues"] == "https://forge.example/ours/issues"


def test_an_sdist_keeps_the_addresses_that_it_was_built_with(tmp_path: Path) -> None:
    (tmp_path / "PKG-INFO").write_text(
        "Metadata-Version: 2.4\nName: x\nProject-URL: Source, https://forge.example/x\n\nText\n"
    )
    assert addresses(tmp_path) == {"Source": "https://forge.example/x"}
