"""docs/errors.md: each code of an error has its section, and no code is used twice."""

from __future__ import annotations

import ast
import re
from collections import Counter

import pytest

from tests.architecture.sources import PACKAGE
from tests.docs.pages import ROOT
from window_consumer.cli.output import BUG, errors_page, explained_at
from window_consumer.model.errors import WindowConsumerError

PAGE = (ROOT / "docs/errors.md").read_text("utf-8")
SECTIONS = dict(re.findall(r"^### (WC\d+)\n\n(.*?)(?=^##|\Z)", PAGE, re.MULTILINE | re.DOTALL))

RETIRED = "No longer used."
"""How the section of a code begins whose class is gone: it is never given to another one."""


def codes() -> list[tuple[str, str]]:
    """Return the code and the name of each class that has one of its own."""
    return [
        (str(each.value.value), node.name)
        for file in PACKAGE.rglob("*.py")
        for node in ast.walk(ast.parse(file.read_text("utf-8")))
        if isinstance(node, ast.ClassDef)
        for each in node.body
        if isinstance(each, ast.Assign | ast.AnnAssign)
        and isinstance(each.value, ast.Constant)
        and re.fullmatch(r"WC\d+", str(each.value.value))
    ]


def test_no_code_is_used_twice() -> None:
    assert [code for code, times in Counter(code for code, _ in codes()).items() if times > 1] == []
    assert len(re.findall(r"^### WC", PAGE, re.MULTILINE)) == len(SECTIONS)


def test_the_page_has_what_each_code_means() -> None:
    used = {code: f"`{name}`" for code, name in codes()} | {BUG: "A bug."}
    left = {code: text for code, text in SECTIONS.items() if not text.startswith(RETIRED)}
    assert left.keys() == used.keys()
    assert [code for code, text in left.items() if not text.startswith(used[code])] == []


def test_the_documentation_has_an_anchor_for_each_code() -> None:
    assert explained_at(WindowConsumerError.code).endswith("errors.md#wc100")


@pytest.mark.parametrize(
    ("urls", "page"),
    [
        ([], "docs/errors.md"),
        (
            ["Documentation, https://forge.example/it/blob/HEAD/docs/README.md"],
            "https://forge.example/it/blob/HEAD/docs/errors.md",
        ),
        (
            ["Source, https://x.example", "Documentation, https://docs.example/"],
            "https://docs.example/errors.md",
        ),
    ],
)
def test_the_page_is_beside_the_one_that_the_package_names(urls: list[str], page: str) -> None:
    assert errors_page(urls) == page
