"""Public names say what they promise; what overrides a documented method keeps its promise."""

from __future__ import annotations

import importlib
import inspect
import pkgutil
from collections.abc import Iterator
from functools import cached_property
from types import FunctionType, ModuleType

import window_consumer

_SHORTEST = 10
"""Less than this says nothing."""

_MEMBERS = (FunctionType, property, cached_property, classmethod, staticmethod)

MODULES = [
    "window_consumer",
    "pytest_window_consumer",
    *(found.name for found in pkgutil.walk_packages(window_consumer.__path__, "window_consumer.")),
]


def undocumented(module: ModuleType) -> Iterator[str]:
    """Yield the public names that a module defines itself and does not document."""
    name = module.__name__
    if not _has_content(module.__doc__):
        yield name
    for key, value in vars(module).items():
        if key.startswith("_") or getattr(value, "__module__", None) != name:
            continue
        if isinstance(value, type):
            yield from _undocumented_in(value, f"{name}.{key}")
        elif isinstance(value, FunctionType) and not _has_content(value.__doc__):
            yield f"{name}.{key}"


def _undocumented_in(owner: type, name: str) -> Iterator[str]:
    if not _has_content(vars(owner).get("__doc__")):
        yield name
    for key, value in vars(owner).items():
        if key.startswith("_") or not isinstance(value, _MEMBERS) or _is_a_value(value):
            continue
        if not _has_content(_promise(owner, key)):
            yield f"{name}.{key}"


def _is_a_value(member: object) -> bool:
    """Tell a function that is a class's constant from its methods."""
    return getattr(inspect.unwrap(member), "__name__", "") == "<lambda>"  # type: ignore[arg-type] # staticmethods wrap a function


def _promise(owner: type, key: str) -> str | None:
    """Return a member's docstring, its own or the nearest inherited one."""
    for ancestor in owner.__mro__:
        doc = inspect.getdoc(vars(ancestor)[key]) if key in vars(ancestor) else None
        if doc:
            return doc
    return None


def _has_content(doc: str | None) -> bool:
    return doc is not None and len(doc.strip()) >= _SHORTEST


def test_every_public_name_says_what_it_promises() -> None:
    modules = map(importlib.import_module, MODULES)
    assert [name for module in modules for name in undocumented(module)] == []


def test_a_name_without_a_docstring_is_found() -> None:
    bare = ModuleType("bare")

    class Base:
        """Documented."""

        def reported(self) -> None:
            """Documented here, for all that override it."""

    class Bare(Base):
        def reported(self) -> None: ...
        def undocumented(self) -> None: ...
        def _private(self) -> None: ...
        @property
        def value(self) -> None: ...

    def function() -> None: ...

    for value in (Base, Bare, function):
        value.__module__ = "bare"
        setattr(bare, value.__name__, value)
    assert list(undocumented(bare)) == [
        "bare",
        "bare.Bare",
        "bare.Bare.undocumented",
        "bare.Bare.value",
        "bare.function",
    ]
