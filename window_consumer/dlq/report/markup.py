"""HTML and SVG from values: what is not markup already is escaped, whoever wrote it."""

from __future__ import annotations

from html import escape

from window_consumer.model.redaction import (
    printable,
    printable_line,
)

_SHAPES = frozenset({"line", "rect"})
"""Of SVG: without anything in them they close themselves."""


class Markup(str):
    """Text that is markup; any other text becomes it by being escaped."""

    __slots__ = ()


Inner = str | Markup | None


def text(content: str, *, lines: bool = False) -> Markup:
    """Return a text as markup; characters that nobody can see are written out."""
    shown = printable(content) if lines else printable_line(content)
    return Markup(escape(shown))


def tag(name: str, /, *inner: Inner, **attributes: object) -> Markup:
    """Return an element; underlines in names of attributes stand for ``-``, ``class_`` for class.

    Attributes that are None are left out.
    """
    given = "".join(
        f' {key.rstrip("_").replace("_", "-")}="{text(str(value))}"'
        for key, value in attributes.items()
        if value is not None
    )
    if name == "meta":
        return Markup(f"<meta{given}>")
    if name in _SHAPES and not inner:
        return Markup(f"<{name}{given}/>")
    return Markup(f"<{name}{given}>{join(*inner)}</{name}>")


def breakable(name: str) -> Markup:
    """Return a dotted name that a narrow column breaks behind a dot, not within a word."""
    return Markup(text(name).replace(".", ".<wbr>"))


def join(*parts: Inner) -> Markup:
    """Return several pieces as one."""
    return Markup(
        "".join(part if isinstance(part, Markup) else text(part) for part in parts if part)
    )
