"""Inspection of types: name, inner types, and the library that builds them.

Imports no optional library: an application with such a class has already imported it.
"""

from __future__ import annotations

import sys
import types
import typing
from collections.abc import Iterator
from typing import Union


def name_of(annotation: object) -> str:
    """Return a type as people write it."""
    if isinstance(annotation, type) and typing.get_origin(annotation) is None:
        return annotation.__name__
    if typing.get_origin(annotation) in (Union, types.UnionType):
        return " | ".join(map(name_of, typing.get_args(annotation)))
    return str(annotation)


def mentioned(annotation: object) -> Iterator[object]:
    """Yield a type and the types within its brackets."""
    yield annotation
    for argument in typing.get_args(annotation):
        yield from mentioned(argument)


def without_none(annotation: object) -> object:
    """Return a type without ``| None``."""
    if typing.get_origin(annotation) not in (Union, types.UnionType):
        return annotation
    others = tuple(each for each in typing.get_args(annotation) if each is not type(None))
    return Union[others]  # noqa: UP007 - its types are known only at run time


def is_of_pydantic(kinds: list[object]) -> bool:
    """Return whether pydantic reads one of these types."""
    is_dataclass = any(hasattr(kind, "__pydantic_validator__") for kind in kinds)
    return is_dataclass or _has_subclass(kinds, "pydantic", "BaseModel")


def is_of_msgspec(kinds: list[object]) -> bool:
    """Return whether msgspec reads one of these types."""
    return _has_subclass(kinds, "msgspec", "Struct")


def is_protobuf(annotation: object) -> bool:
    """Return whether a type is a class that protoc has generated."""
    return _has_subclass([annotation], "google.protobuf.message", "Message")


def _has_subclass(kinds: list[object], module: str, base: str) -> bool:
    known = getattr(sys.modules.get(module), base, None)
    return known is not None and any(isinstance(k, type) and issubclass(k, known) for k in kinds)
