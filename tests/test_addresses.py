"""The project's addresses in the wheel's metadata: none is invented."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import zipfile
from email.message import Message
from email.parser import Parser
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

from tests.docs.pages import ROOT

# Not part of any package; and mypy would need hatchling wherever it checks the tests.
hatch_build = import_module("hatch_build")


def updated(root: Path) -> dict[str, Any]:
    (root / "README.md").write_text(README)
    metadata: dict[str, Any] = {}
    hatch_build.Addresses(str(root), {}).update(metadata)
    return metadata


def addresses(root: Path) -> dict[str, str]:
    found: dict[str, str] = updated(root)["urls"]
    return found


README = """# It
[a `page`](docs/a.md#part) and [another](https://other.example/x), ![a
chart](docs/images/a.svg), [below](#part)

```python
handlers[0](docs)
```
"""


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


def test_links_and_pictures_of_the_readme_work_where_only_it_is_shown(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(hatch_build.VARIABLE, "https://forge.example/it")
    readme = updated(tmp_path)["readme"]
    assert readme["content-type"] == "text/markdown"
    assert readme["text"] == README.replace(
        "(docs/a.md#part)", "(https://forge.example/it/blob/HEAD/docs/a.md#part)"
    ).replace("(docs/images/a.svg)", "(https://forge.example/it/raw/HEAD/docs/images/a.svg)")


def test_without_an_address_the_readme_stays_as_it_is(tmp_path: Path) -> None:
    assert updated(tmp_path)["readme"]["text"] == README


def test_a_built_wheel_has_the_readme_without_relative_links(tmp_path: Path) -> None:
    description = str(built_wheel(tmp_path, "https://forge.example/it").get_payload())
    links = re.findall(r"\]\(([^)\s]+)\)", description)
    assert len(links) > 40
    assert [each for each in links if not each.startswith("https://")] == []
    ours = {each.partition("/HEAD/")[2].partition("#")[0] for each in links if "/HEAD/" in each}
    assert [each for each in ours if not (ROOT / each).exists()] == []


def built_wheel(directory: Path, repository: str) -> Message:
    """Build a wheel as CI does, and return its metadata."""
    command = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(directory)]
    env = {**os.environ, hatch_build.VARIABLE: repository}
    subprocess.run(command, cwd=ROOT, env=env, check=True, capture_output=True)
    (wheel,) = directory.glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        (name,) = (each for each in archive.namelist() if each.endswith("/METADATA"))
        return Parser().parsestr(archive.read(name).decode())
