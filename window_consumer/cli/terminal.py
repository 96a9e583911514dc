"""What strangers wrote into records, made fit for a terminal."""

from __future__ import annotations


def printable(text: str) -> str:
    """Keep text of several lines from commanding the terminal."""
    return "".join(c if c in "\n\t" or c.isprintable() else _escaped(c) for c in text)


def printable_line(text: str) -> str:
    """Keep it on one line, too."""
    return "".join(c if c.isprintable() else _escaped(c) for c in text)


def _escaped(character: str) -> str:
    return character.encode("unicode_escape").decode()
