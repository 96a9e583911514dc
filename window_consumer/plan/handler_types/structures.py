"""Builds objects with cattrs: attrs classes, dataclasses, TypedDicts, and lists and dicts of them.

The input is JSON, or the output of a schema, which may contain dates, decimals and bytes.

The rules are stricter than those of cattrs, which would accept a text as a list of its characters,
or anything for a class whose fields have defaults. All parts of a type are checked before the first
record, while cattrs checks some only on use.
"""

from __future__ import annotations

import base64
import dataclasses
import inspect
import typing
from collections.abc import Callable, Iterator, Sequence
from collections.abc import Set as AbstractSet
from datetime import date, datetime, time
from decimal import Decimal
from typing import Any, Literal
from uuid import UUID

import attrs
from cattrs import Converter
from cattrs.cols import list_structure_factory
from cattrs.preconf.json import make_converter

Structure = Callable[[Any, Any], Any]
"""Builds an object from a JSON value; its second argument is the type."""


def structure_of(annotation: Any) -> Structure:
    """Return the function that builds a type from a JSON value.

    Raises cattrs' errors if the type or one of its parts cannot be built.
    """
    structure: Structure = _CONVERTER.get_structure_hook(annotation)
    for part in _parts(annotation, set()):
        _CONVERTER.get_structure_hook(part)
    return structure


def _parts(kind: Any, seen: set[Any]) -> Iterator[Any]:
    """Yield the types within a type's brackets and fields, recursively."""
    within = [] if typing.get_origin(kind) is Literal else list(typing.get_args(kind))
    if typing.get_origin(kind) is typing.Annotated:
        within = within[:1]
    for part in (*within, *_fields_of(typing.get_origin(kind) or kind)):
        if part in seen or part in (None, type(None), ...) or isinstance(part, typing.TypeVar):
            continue
        seen.add(part)
        if not getattr(part, "__parameters__", ()):  # list[T] means nothing before T is known
            yield part
        yield from _parts(part, seen)


def _fields_of(kind: Any) -> Sequence[Any]:
    """Return the types of the fields that come from JSON; nothing for other types."""
    if attrs.has(kind):
        names = {field.name for field in attrs.fields(kind) if field.init}
    elif dataclasses.is_dataclass(kind):
        names = {field.name for field in dataclasses.fields(kind) if field.init}
    elif typing.is_typeddict(kind):
        names = set(kind.__annotations__)
    else:
        return ()
    hints = typing.get_type_hints(kind)
    return [hints[name] for name in names if name in hints]


# ---- stricter than cattrs

_JSON_KINDS = {dict: "an object", list: "an array", str: "a text", bool: "a boolean"}


def _formed(kind: type, structure: Structure) -> Structure:
    """Accept only one kind of JSON value."""
    wanted = _JSON_KINDS[kind]

    def check(value: Any, annotation: Any) -> Any:
        if type(value) is not kind:
            found = "null" if value is None else _JSON_KINDS.get(type(value), "a number")
            raise TypeError(f"it is {found}, not {wanted}")
        return structure(value, annotation)

    return check


def _strictly(*kinds: type) -> Structure:
    """Take a value unchanged: cattrs alone would convert numbers and null to text."""

    def check(value: Any, kind: Any) -> Any:
        if type(value) not in kinds:
            raise TypeError(f"{value!r} is not {kind.__name__}")
        return kind(value)

    return check


def _decimal(value: Any, _kind: Any) -> Decimal:
    if type(value) not in (str, int, float):
        raise TypeError(f"{value!r} is not a decimal number")
    try:
        number = Decimal(str(value))
    except ArithmeticError:
        number = Decimal("nan")
    if not number.is_finite():
        raise ValueError("it is not a finite number")
    return number


def _register(kind: type, structure: Structure) -> None:
    """Build a type from its JSON form; return an object of the type unchanged."""
    _CONVERTER.register_structure_hook(
        kind, lambda value, _kind: value if type(value) is kind else structure(value, kind)
    )


_CONVERTER = make_converter()
_CONVERTER.register_structure_hook(str, _strictly(str))
_CONVERTER.register_structure_hook(int, _strictly(int))
_CONVERTER.register_structure_hook(float, _strictly(float, int))
_CONVERTER.register_structure_hook(bool, _strictly(bool))
_register(Decimal, _decimal)
_register(UUID, _formed(str, lambda value, _kind: UUID(value)))
_register(time, _formed(str, lambda text, _kind: time.fromisoformat(text)))
_register(date, lambda text, _kind: date.fromisoformat(text))
_register(datetime, lambda text, _kind: datetime.fromisoformat(text))
# cattrs would read base 85, which is unusual
_register(bytes, _formed(str, lambda text, _kind: base64.b64decode(text, validate=True)))


def _is_class_with_fields(kind: Any) -> bool:
    bare = typing.get_origin(kind) or kind
    return inspect.isclass(bare) and (attrs.has(bare) or dataclasses.is_dataclass(bare))


def _is_kind_of(*kinds: Any) -> Callable[[Any], bool]:
    return lambda kind: (typing.get_origin(kind) or kind) in kinds


def _element(kind: Any) -> Any:
    return next(iter(typing.get_args(kind)), Any)


def _is_open_tuple(kind: Any) -> bool:
    arguments = typing.get_args(kind)
    return typing.get_origin(kind) is tuple and len(arguments) == 2 and arguments[1] is ...


@_CONVERTER.register_structure_hook_factory(_is_class_with_fields)
def _of_class(kind: Any, converter: Converter) -> Structure:
    return _formed(dict, converter.gen_structure_attrs_fromdict(kind))


@_CONVERTER.register_structure_hook_factory(typing.is_typeddict)
def _of_typed_dict(kind: Any, converter: Converter) -> Structure:
    return _formed(dict, converter.gen_structure_typeddict(kind))


def _is_dict_by_number(kind: Any) -> bool:
    return typing.get_origin(kind) is dict and _element(kind) is int


@_CONVERTER.register_structure_hook_factory(_is_dict_by_number)
def _of_dict_by_number(kind: Any, converter: Converter) -> Structure:
    """Convert keys to numbers; in JSON all keys are text."""
    by_text: Any = dict[str, typing.get_args(kind)[1]]  # type: ignore[misc] # only known here
    structure = converter.get_structure_hook(by_text)

    def by_number(value: Any, _kind: Any) -> dict[int, Any]:
        return {int(key): each for key, each in structure(value, by_text).items()}

    return by_number


@_CONVERTER.register_structure_hook_factory(_is_kind_of(list))
def _of_list(kind: Any, converter: Converter) -> Structure:
    return _formed(list, list_structure_factory(kind, converter))


def _of_list_made_into(made: Callable[[list[Any]], Any]) -> Callable[[Any, Converter], Structure]:
    def factory(kind: Any, converter: Converter) -> Structure:
        as_list: Any = list[_element(kind)]  # type: ignore[misc] # only known here
        structure = converter.get_structure_hook(as_list)
        return lambda value, _kind: made(structure(value, as_list))

    return factory


for _predicate, _made in (
    (_is_kind_of(set, AbstractSet), set),
    (_is_kind_of(frozenset), frozenset),
    (_is_kind_of(Sequence), tuple),
    (_is_open_tuple, tuple),
):
    _CONVERTER.register_structure_hook_factory(_predicate, _of_list_made_into(_made))
