"""Recipes: CONTRIBUTING says where a change goes, which is one folder and few other files."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path, PurePosixPath

import pytest

ROOT = Path(__file__).parents[2]
PACKAGE = ROOT / "window_consumer"
MOST_OTHERS = 3

_ROW = re.compile(r"^\| (?!change |---)(.+?) \| (.+) \|$", re.MULTILINE)
_IN_WORDS = re.compile(r"^\*\*(.+?)\*\* .+?(?=\n\n)", re.MULTILINE | re.DOTALL)
_PATH = re.compile(
    r"`((?:[\w<>-]+/)*[\w<>-]+(?:/|\.py|\.md))`|`([\w/-]+/\w+)`|\b(docs/[\w/-]+\.md)\b"
)


def recipes() -> dict[str, str]:
    """Return the recipes by what changes: a row of the table, with its paragraph if it has one."""
    text = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    section = text.partition("### Where a change goes\n")[2].partition("\n## ")[0]
    found = dict(_ROW.findall(section))
    for paragraph in _IN_WORDS.finditer(f"{section}\n\n"):
        found[f"{paragraph[1][0].lower()}{paragraph[1][1:]}"] += f"\n{paragraph[0]}"
    return found


def places(recipe: str) -> Iterator[PurePosixPath]:
    """Yield the files and folders that a recipe names; a name alone stands for the same folder."""
    folder = PurePosixPath()
    for found in _PATH.finditer(recipe):
        place = PurePosixPath(found[1] or found[2] or found[3])
        if len(place.parts) == 1 and (PACKAGE / folder / place).exists():
            place = folder / place
        folder = place.parent if place.suffix else place
        yield place


def others(named: set[PurePosixPath]) -> set[PurePosixPath]:
    """Return the places outside the folder of the package that has most of them."""
    folders = {parent for place in named for parent in (place, *place.parents[:-1])}
    folders = {each for each in folders if each.parts[0] not in {"docs", "tests"}}
    outside = [{each for each in named if not each.is_relative_to(folder)} for folder in folders]
    return min(outside, key=len)


@pytest.mark.parametrize("change", recipes())
def test_a_change_goes_to_one_folder_and_few_other_files(change: str) -> None:
    named = set(places(recipes()[change]))
    assert named
    assert len(others(named)) <= MOST_OTHERS
    for place in named:
        pattern = str(place).replace("<feature>", "*")
        assert any([*PACKAGE.rglob(pattern), *ROOT.glob(pattern)]), place


@pytest.mark.parametrize(
    ("recipe", "count"),
    [
        ("`engine/turn.py`, `intake.py` and `model/outcome.py`", 1),
        ("`model/a.py`, `engine/b.py`, `tests/c/d.py`, `tests/e.py`, docs/f.md, `app/`", 5),
        ("`admin/routes.py`, `admin/commands/top.py` and `admin/doctor/`", 0),
    ],
)
def test_places_outside_the_folder_are_counted(recipe: str, count: int) -> None:
    assert len(others(set(places(recipe)))) == count
