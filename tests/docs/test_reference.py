"""The reference is what the code says, and examples stand on what it calls public."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path

import pytest

from docs import api_reference, command_reference, concept_pictures
from tests.docs.pages import PAGES, ROOT, blocks

FOR_CONTRIBUTORS = {ROOT / "docs/adding-a-feature.md", ROOT / "CONTRIBUTING.md"}
"""Their examples work inside the package."""

EXAMPLES = sorted((ROOT / "examples").rglob("*.py"))


def test_the_page_of_commands_lists_all_commands_with_their_options() -> None:
    page = command_reference.PAGE.read_text("utf-8")
    assert page == command_reference.rendered(page), "stale: python -m docs.command_reference"


def test_the_page_of_the_public_interface_is_what_the_code_says() -> None:
    page = api_reference.PAGE.read_text("utf-8")
    assert page == api_reference.page(), "stale: python -m docs.api_reference"


def test_commands_of_groups_are_listed_by_their_whole_names() -> None:
    listed = {name for name, _ in command_reference.commands()}
    assert {"run", "dlq redrive", "pipeline run"} <= listed
    assert "dlq" not in listed


def sources(page: Path) -> Iterator[str]:
    if page.suffix == ".py":
        yield page.read_text("utf-8")
    else:
        yield from (block.text for block in blocks(page, "python"))


def imported(source: str) -> Iterator[tuple[str, str]]:
    """Yield what a source imports from the package: module and name."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.ImportFrom) and node.module:
            yield from ((node.module, each.name) for each in node.names)
        elif isinstance(node, ast.Import):
            yield from ((each.name, "") for each in node.names)


def not_public(source: str) -> set[tuple[str, str]]:
    ours = {it for it in imported(source) if it[0].split(".")[0] == "window_consumer"}
    return {(module, name) for module, name in ours if not _is_public(module, name)}


def _is_public(module: str, name: str) -> bool:
    if module not in api_reference.PUBLIC:
        return False
    if not name or f"{module}.{name}" in api_reference.PUBLIC:
        return True
    return name in api_reference.names(import_module(module))


@pytest.mark.parametrize(
    "page",
    [*(page for page in PAGES if page not in FOR_CONTRIBUTORS), *EXAMPLES],
    ids=lambda page: str(page.relative_to(ROOT)),
)
def test_what_examples_import_is_public(page: Path) -> None:
    for source in sources(page):
        assert not_public(source) == set()


def test_inner_modules_and_names_are_noticed() -> None:
    source = (
        "from window_consumer.model.record import Record\nfrom window_consumer import Apps, App"
    )
    found = {("window_consumer.model.record", "Record"), ("window_consumer", "Apps")}
    assert not_public(source) == found


@pytest.mark.parametrize("name", concept_pictures.PICTURES)
def test_drawings_are_drawn_by_their_source(name: str) -> None:
    drawn = concept_pictures.PICTURES[name]()
    committed = (concept_pictures.IMAGES / name).read_text("utf-8")
    assert committed == drawn, "stale: python -m docs.concept_pictures"
    assert "prefers-color-scheme: dark" in drawn
    assert any(f"(images/{name})" in page.read_text("utf-8") for page in PAGES)
