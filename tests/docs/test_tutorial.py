"""The tutorial: each step is followed from its page, in the project that the steps before made."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.docs.pages import all_blocks, word_count
from tests.docs.walkthrough import Reader, in_order

PAGES = in_order("tutorial")
FIRST, *OTHERS = PAGES


@pytest.fixture
def reader(tmp_path: Path) -> Iterator[Reader]:
    (tmp_path / "logs").mkdir()
    with Reader(tmp_path, tmp_path / "logs") as reader:
        yield reader


def reach(reader: Reader, page: Path) -> None:
    """Make the project as it is when a page begins."""
    reader.type("window-consumer init shop", [])
    reader.type("cd shop", [])
    for earlier in PAGES[: PAGES.index(page)]:
        for block in all_blocks(earlier):
            if block.file is not None:
                reader.write(block)


def test_the_first_step_works_from_an_empty_folder(reader: Reader) -> None:
    reader.follow(FIRST)


@pytest.mark.parametrize("page", OTHERS, ids=[page.stem for page in OTHERS])
def test_a_step_works_after_those_before_it(page: Path, reader: Reader) -> None:
    reach(reader, page)
    reader.follow(page)


@pytest.mark.parametrize("page", PAGES, ids=[page.stem for page in PAGES])
def test_a_step_is_short(page: Path) -> None:
    assert word_count(page) <= 900
