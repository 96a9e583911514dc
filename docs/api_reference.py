"""The page on the public interface, api.md: ``python -m docs.api_reference`` regenerates it.

It is made from ``__all__``, signatures and docstrings of the modules in ``PUBLIC``.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator
from enum import Enum
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any, Final

PAGE = Path(__file__).parent / "api.md"

PUBLIC: Final = {
    "window_consumer": "applications, records, errors, producers",
    "window_consumer.testing": "the test kit",
    "window_consumer.testing.events": "the events that guarantees receive",
    "window_consumer.testing.guarantees": "promises, checked on what happened",
    "window_consumer.database": "effects in a database (extra `sql`)",
    "window_consumer.database.django": "the same with Django (extra `django`)",
    "window_consumer.faststream": "FastStream's subscribers (extra `faststream`)",
    "window_consumer.audit": "audit counts for programs other than workers",
    "window_consumer.trace": "the trace",
    "window_consumer.audit.spark": "findings of the audit's table (extra `spark`)",
    "window_consumer.dlq.spark": "causes of dead letters (extra `spark`)",
    "window_consumer.spark.backfill": "handlers over a DataFrame (extra `spark`)",
}
"""The public modules, and what is in them. All others may change in any version."""

_HEAD = """# Public interface

What this page lists is public: it changes as [Compatibility](compatibility.md) says. All else in
the package is not, whatever its name. Errors with their codes have [a page](errors.md), keys of the
configuration [another](config.md). The pytest plugin adds the fixture [`wc_app`](testing.md). This
page is made from the docstrings: `python -m docs.api_reference`.

"""

_STARS = {"VAR_POSITIONAL": "*", "VAR_KEYWORD": "**"}
_WIDTH = 90
_COMMA = re.compile(r", (?=\*|\w+: |\w+ = )")
"""Between parameters, and not within a type."""

_PLAIN = (bool, int, float, str, bytes, type(None))


def page() -> str:
    """Return the page."""
    rows = [f"| [`{name}`](#{_anchor(name)}) | {what} |\n" for name, what in PUBLIC.items()]
    table = "".join(["| module | what |\n", "|---|---|\n", *rows])
    return _HEAD + table + "".join(map(_section, PUBLIC))


def names(module: ModuleType) -> list[str]:
    """Return the public names of a public module."""
    listed: list[str] | None = getattr(module, "__all__", None)
    if listed is None:
        here = [name for name, value in vars(module).items() if _is_made_in(module, value)]
        listed = [name for name in here if not name.startswith("_")]
    return sorted((name for name in listed if not name.startswith("__")), key=str.lower)


def _is_made_in(module: ModuleType, value: object) -> bool:
    made_here = getattr(value, "__module__", None) == module.__name__
    return made_here and (inspect.isclass(value) or inspect.isfunction(value))


def _anchor(name: str) -> str:
    return re.sub(r"[^\w\- ]", "", name)


def _section(name: str) -> str:
    module = import_module(name)
    entries = {each: getattr(module, each) for each in names(module)}
    described = {
        each: value
        for each, value in entries.items()
        if inspect.isclass(value) or inspect.isroutine(value)
    }
    constants = [f"`{each}`" for each in entries if each not in described]
    text = [f"\n## `{name}`\n"]
    text += [f"\n{_entry(each, value)}" for each, value in described.items()]
    text += [f"\nConstants: {', '.join(constants)}.\n"] if constants else []
    return "".join(text)


def _entry(name: str, value: Any) -> str:
    """Return signature, first paragraph and public methods of a class or function."""
    if inspect.isclass(value) and issubclass(value, Enum):
        members = ", ".join(f"`{each.name}`" for each in value)
        return f"**`{name}`** {_first_paragraph(value)} Members: {members}.\n"
    if inspect.isclass(value) and issubclass(value, BaseException):
        return f"**`{name}`** {_first_paragraph(value)}\n"
    methods = "".join(_methods(value)) if inspect.isclass(value) else ""
    called = signature(value)
    if len(called) > _WIDTH:
        called = _COMMA.sub(",\n    ", called)
    shown = f"```text\n{name}{called}\n```\n\n{_first_paragraph(value)}\n"
    return shown + (f"\n{methods}" if methods else "")


def _methods(of: type) -> Iterator[str]:
    for name, value in sorted(vars(of).items()):
        inner = value.__func__ if isinstance(value, (classmethod, staticmethod)) else value
        if name.startswith("_") or not inspect.getdoc(inner):
            continue
        if isinstance(inner, property):
            yield f"- `{name}`: {_first_paragraph(inner)}\n"
        elif inspect.isfunction(inner):
            yield f"- `{name}{signature(inner)}`: {_first_paragraph(inner)}\n"


def signature(of: Any) -> str:
    """Return the parameters with their annotations, as they are written."""
    try:
        found = inspect.signature(of)
    except ValueError:  # written in C
        return "(...)"
    shown, by_name = [], False
    for each in found.parameters.values():
        if each.name in {"self", "cls"} or each.name.startswith("_"):
            continue
        if each.kind is each.KEYWORD_ONLY and not by_name:
            shown.append("*")
        by_name = by_name or each.kind in {each.KEYWORD_ONLY, each.VAR_POSITIONAL}
        shown.append(_parameter(each))
    result = "" if found.return_annotation is found.empty else _type(found.return_annotation)
    arrow = f" -> {result}" if result and not inspect.isclass(of) else ""
    return f"({', '.join(shown)}){arrow}"


def _parameter(of: inspect.Parameter) -> str:
    stars = _STARS.get(of.kind.name, "")
    kind = "" if of.annotation is of.empty else f": {_type(of.annotation)}"
    if of.default is of.empty:
        return f"{stars}{of.name}{kind}"
    if isinstance(of.default, Enum):
        return f"{of.name}{kind} = {type(of.default).__name__}.{of.default.name}"
    default = repr(of.default) if isinstance(of.default, _PLAIN) else "..."
    return f"{of.name}{kind} = {default}"


def _type(annotation: object) -> str:
    if isinstance(annotation, str):
        return annotation
    return inspect.formatannotation(annotation).removeprefix("ForwardRef('").removesuffix("')")


def _first_paragraph(of: object) -> str:
    text = (inspect.getdoc(of) or "").partition("\n\n")[0]
    return re.sub(r"``([^`]+)``", r"`\1`", " ".join(text.split()))


if __name__ == "__main__":
    PAGE.write_text(page(), "utf-8")
