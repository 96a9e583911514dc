"""The keys ``handler`` and ``routes``: which handlers a worker runs, and for which records."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, Final

from window_consumer.config import kinds
from window_consumer.config.kinds import REFERENCE, ValueKind
from window_consumer.config.problems import InvalidError, Problem
from window_consumer.model.conditions.expressions import Expression, ExpressionError, parse
from window_consumer.model.conditions.lookup import RECORD_FIELDS

Routes = Mapping[str, Expression]

NO_ROUTES: Final[Routes] = MappingProxyType({})


def handlers_kind() -> ValueKind:
    """One handler's name, or a list of names; the value is a text or a tuple."""
    one = kinds.text("the name of a handler")
    several = kinds.list_of(one, "names of handlers")
    expected = "the name of a handler, or a list of names"

    def read(raw: Any) -> str | tuple[str, ...]:
        if isinstance(raw, list):
            names: tuple[str, ...] = several.read(raw)
            return names
        if isinstance(raw, dict):
            raise InvalidError.of(raw, expected)
        name: str = one.read(raw)
        return name

    def write(value: str | tuple[str, ...]) -> str:
        return value if isinstance(value, str) else several.write(value)

    schema = {"anyOf": [one.schema, several.schema]}
    return ValueKind("text or list of texts", expected, read, write, schema, expected)


def routes_kind() -> ValueKind:
    """Conditions by handler name; the value is a mapping of Expressions."""
    expected = "a mapping of handlers to conditions, as in {paid: \"header('type') == 'paid'\"}"

    def read(raw: Any) -> Routes:
        if not isinstance(raw, dict):
            raise InvalidError.of(raw, expected)
        found: dict[str, Expression] = {}
        problems: list[Problem] = []
        for name, text in raw.items():
            try:
                found[name] = _read_condition(text)
            except InvalidError as error:
                problems.extend(problem.below((name,)) for problem in error.problems)
        if problems:
            raise InvalidError(*problems)
        return MappingProxyType(found)

    def write(value: Routes) -> str:
        items = (f'{name}: "{_escaped(str(condition))}"' for name, condition in value.items())
        return f"{{{', '.join(items)}}}"

    condition = {"anyOf": [{"type": "string", "minLength": 1}, REFERENCE]}
    schema = {"type": "object", "additionalProperties": condition}
    return ValueKind("mapping of conditions", expected, read, write, schema, expected)


def _read_condition(raw: Any) -> Expression:
    expected = "a condition such as \"header('type') == 'paid'\""
    if not isinstance(raw, str):
        raise InvalidError.of(raw, expected)
    try:
        return parse(str(raw), RECORD_FIELDS)
    except ExpressionError as error:
        raise InvalidError(Problem((), str(error))) from None


def _escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"')
