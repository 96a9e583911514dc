"""The site: MkDocs builds it of the pages, strictly, and it asks no other host for anything."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path

import pytest
from attrs import define, field

from docs import site_hooks
from tests.docs.pages import ROOT
from window_consumer.app.features import FEATURES
from window_consumer.config import json_schema

REPOSITORY = "https://forge.invalid/window-consumer"


@define
class Seen(HTMLParser):
    """What a page of the site loads, and where its links lead."""

    loads: set[str] = field(factory=set)
    links: set[str] = field(factory=set)

    def __attrs_pre_init__(self) -> None:
        super().__init__()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = dict(attrs)
        if tag == "a":
            self.links.add(given.get("href") or "")
        else:
            self.loads |= {given.get("href") or "", given.get("src") or ""}


def build(site: Path, *options: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(site), *options],
        cwd=ROOT,
        env=os.environ | {"WINDOW_CONSUMER_REPOSITORY": REPOSITORY, "NO_MKDOCS_2_WARNING": "1"},
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The site, built. Its links and anchors are checked on the way."""
    folder = tmp_path_factory.mktemp("site")
    built = build(folder)
    assert built.returncode == 0, built.stderr
    return folder


def pages(site: Path) -> Iterator[tuple[Path, Seen]]:
    for file in site.rglob("*.html"):
        seen = Seen()
        seen.feed(file.read_text("utf-8"))
        yield file, seen


def test_no_page_asks_another_host(site: Path) -> None:
    for file, seen in pages(site):
        assert not {each for each in seen.loads if re.match(r"(\w+:)?//", each)}, file
    for style in site.rglob("*.css"):
        assert not re.search(r"(@import|url\()\s*[\"']?(https?:)?//", style.read_text("utf-8"))


def test_links_to_code_lead_to_files_of_the_repository(site: Path) -> None:
    there = f"{REPOSITORY}/blob/HEAD/"
    found = {link.partition("#")[0] for _, seen in pages(site) for link in seen.links}
    files = {link.removeprefix(there) for link in found if link.startswith(there)}
    assert "tests/engine/test_backpressure.py" in files
    assert {file for file in files if not (ROOT / file).is_file()} == set()


def test_its_home_begins_as_the_readme(site: Path) -> None:
    home = (site / "index.html").read_text("utf-8")
    assert "<h1" in home
    assert home.count("<h1") == 1
    assert 'src="images/throughput.svg"' in home


def test_editors_get_the_schema_that_the_page_on_configuration_names(site: Path) -> None:
    page = Seen()
    page.feed((site / "config/index.html").read_text("utf-8"))
    (link,) = {each for each in page.links if each.endswith("schema.json")}
    published = (site / "config" / link).read_text("utf-8")
    assert json.loads(published) == json_schema(FEATURES.sections)


def test_a_link_to_code_becomes_its_text_without_an_address() -> None:
    text = "[`a test`](tests/a.py), [a page](b.md#c)\n```\n[x](tests/a.py)\n```\n"
    kept = site_hooks.led(text, lambda link: None if link.startswith("tests/") else f"../{link}")
    assert kept == "`a test`, [a page](../b.md#c)\n```\n[x](tests/a.py)\n```\n"
