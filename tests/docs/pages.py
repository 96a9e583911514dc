"""The pages of the documentation and the examples in them."""

from __future__ import annotations

import ast
import itertools
import re
from collections.abc import Iterator
from pathlib import Path

from attrs import frozen

ROOT = Path(__file__).parents[2]

PAGES = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md")])

_FENCE = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_FILE_NAME = re.compile(r"# (\S+\.\w+)\n")
_LINK = re.compile(r"\]\(([^)\s]+)\)")


@frozen
class Block:
    """A fenced block; ``file`` is the name that its first line gives it, if any."""

    language: str
    text: str
    file: str | None


def blocks(page: Path, language: str) -> list[Block]:
    return [each for each in all_blocks(page) if each.language == language]


def all_blocks(page: Path) -> Iterator[Block]:
    for found in _FENCE.finditer(page.read_text("utf-8")):
        named = _FILE_NAME.match(found[2])
        text = found[2][named.end() :] if named else found[2]
        yield Block(found[1], text, named[1] if named else None)


def module_of(page: Path) -> str:
    """Return the page's Python blocks without a file name as one module."""
    return "\n\n".join(block.text for block in blocks(page, "python") if block.file is None)


def commands(page: Path) -> list[str]:
    """Return the commands of the page, without comments and redirections."""
    return [
        re.split(r"  #| > ", line.removeprefix("$ "))[0].strip()
        for block in blocks(page, "console")
        for line in block.text.splitlines()
        if line.startswith("$ ")
    ]


def word_count(page: Path) -> int:
    """Return how many words a page has, without bars and rules of tables."""
    return sum(1 for word in page.read_text("utf-8").split() if re.search(r"\w", word))


def links(page: Path) -> list[str]:
    return _LINK.findall(page.read_text("utf-8"))


def table(page: Path, first: str) -> list[list[str]]:
    """Return the cells of the table whose first column is named ``first``, header included."""
    lines = page.read_text("utf-8").splitlines()
    (start,) = (number for number, line in enumerate(lines) if line.startswith(f"| {first}|"))
    rows = itertools.takewhile(lambda line: line.startswith("|"), lines[start:])
    return [
        [cell.strip() for cell in row.strip("|").split("|")] for row in rows if "---" not in row
    ]


def numbered_tests(page: Path) -> dict[int, tuple[str, str]]:
    """Return file and name of each test in the page's numbered list."""
    found = re.findall(r"^(\d+)\. `([\w/]+\.py)::(\w+)`$", page.read_text("utf-8"), re.MULTILINE)
    return {int(number): (file, name) for number, file, name in found}


def missing_tests(page: Path) -> list[tuple[str, str]]:
    """Return the tests in the page's numbered list that do not exist."""
    return [each for each in numbered_tests(page).values() if each[1] not in functions(each[0])]


def functions(file: str) -> set[str]:
    """Return the names of a file's functions."""
    tree = ast.parse((ROOT / file).read_text("utf-8"))
    return {node.name for node in tree.body if isinstance(node, ast.FunctionDef)}


def anchors(page: Path) -> set[str]:
    """Return the anchors of the page's headings, as GitHub generates them."""
    headings = re.findall(r"^#+ (.*)$", page.read_text("utf-8"), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", text.lower()).replace(" ", "-") for text in headings}
