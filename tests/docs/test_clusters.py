"""The page about several clusters: its tests are there."""

from __future__ import annotations

import re

from tests.docs.pages import ROOT, missing_tests, numbered_tests

PAGE = ROOT / "docs/clusters.md"


def test_the_named_tests_exist_and_each_is_used() -> None:
    assert missing_tests(PAGE) == []
    text, _, _ = PAGE.read_text("utf-8").partition("## The tests behind the numbers")
    used = {
        int(number)
        for group in re.findall(r"\((\d(?:, \d)*)\)", text)
        for number in group.split(", ")
    }
    assert used == set(numbered_tests(PAGE))


def test_it_is_short() -> None:
    assert len(PAGE.read_text("utf-8").split()) <= 900
