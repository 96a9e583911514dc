"""The pages of the documentation and the examples in them."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

from attrs import frozen

ROOT = Path(__file__).parents[2]

PAGES = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/*.md"), *ROOT.glob("docs/decisions/*.md")])

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
    return [each for each in _blocks(page) if each.language == language]


def _blocks(page: Path) -> Iterator[Block]:
    for found in _FENCE.finditer(page.read_text("utf-8")):
        named = _FILE_NAME.match(found[2])
        text = found[2][named.end() :] if named else found[2]
        yield Block(found[1], text, named[1] if named else None)


def module_of(page: Path) -> str:
    """Return the page's Python blocks without a file name as one module."""
    return "\n\n".join(block.text for block in blocks(page, "python") if block.file is None)


def commands(page: Path) -> list[str]:
    """Return what the page tells to type, without comments and where the output goes."""
    return [
        re.split(r"  #| > ", line.removeprefix("$ "))[0].strip()
        for block in blocks(page, "console")
        for line in block.text.splitlines()
        if line.startswith("$ ")
    ]


def links(page: Path) -> list[str]:
    return _LINK.findall(page.read_text("utf-8"))


def anchors(page: Path) -> set[str]:
    """Return the anchors of the page's headings, the way that GitHub makes them."""
    headings = re.findall(r"^#+ (.*)$", page.read_text("utf-8"), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", text.lower()).replace(" ", "-") for text in headings}
