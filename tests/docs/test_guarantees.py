"""The page about guarantees: each cell names a test, and the tests are there."""

from __future__ import annotations

import re

from tests.docs.pages import ROOT, missing_tests, numbered_tests, table

PAGE = ROOT / "docs/guarantees.md"


def test_each_cell_says_what_a_crash_does_and_names_a_test() -> None:
    head, *cells = table(PAGE, "effect ")
    assert len(head) == 6
    assert len(cells) == 5
    used = set()
    for _, *row in cells:
        assert len(row) == 5
        for cell in row:
            match = re.search(r"\((\d+)\)$", cell)
            assert match, cell
            used.add(int(match[1]))
    assert used == set(numbered_tests(PAGE))


def test_the_named_tests_exist() -> None:
    assert missing_tests(PAGE) == []
