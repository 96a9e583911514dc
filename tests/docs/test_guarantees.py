"""The page about guarantees: each cell names a test, and the tests are there."""

from __future__ import annotations

import ast
import re

from tests.docs.pages import ROOT

PAGE = (ROOT / "docs/guarantees.md").read_text("utf-8")


def rows() -> list[list[str]]:
    lines = [line for line in PAGE.splitlines() if line.startswith("| ")]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]


def named_tests() -> dict[int, tuple[str, str]]:
    found = re.findall(r"^(\d+)\. `([\w/]+\.py)::(\w+)`$", PAGE, re.MULTILINE)
    return {int(number): (file, name) for number, file, name in found}


def test_each_cell_says_what_a_crash_does_and_names_a_test() -> None:
    head, *cells = rows()
    assert len(head) == 6
    assert len(cells) == 5
    used = set()
    for _, *row in cells:
        assert len(row) == 5
        for cell in row:
            match = re.search(r"\((\d+)\)$", cell)
            assert match, cell
            used.add(int(match[1]))
    assert used == set(named_tests())


def test_the_named_tests_exist() -> None:
    for file, name in named_tests().values():
        tree = ast.parse((ROOT / file).read_text("utf-8"))
        assert name in {node.name for node in tree.body if isinstance(node, ast.FunctionDef)}, name
