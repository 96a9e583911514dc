"""Converts raw values to the configuration's classes with cattrs; problems in our own words."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final, TypeVar

import attrs
import cattrs
from attrs import evolve
from cattrs.errors import ClassValidationError, ForbiddenExtraKeysError
from cattrs.gen import make_dict_structure_fn, override

from window_consumer.config import names
from window_consumer.config.options import Section, options, subsections
from window_consumer.config.problems import InvalidError, Problem, did_you_mean
from window_consumer.config.schema import Config
from window_consumer.config.sections.kafka_properties import KafkaConfig, misread, read_kafka
from window_consumer.config.sections.mask import MaskRule
from window_consumer.config.sections.worker import WorkerConfig
from window_consumer.config.tree import Path, Tree

T = TypeVar("T")


def structure(tree: Tree, sections: Sequence[Section] = ()) -> tuple[Config, list[Problem]]:
    """Return the configuration and its problems; wrong values are left out.

    ``sections`` are those of features. Without problems, the configuration is complete with respect
    to single keys.
    """
    raw: dict[str, Any] = tree.value
    known = subsections(Config, sections)
    problems = [_unknown(key, known) for key in raw if key not in known]
    found: dict[str, Any] = {}
    with_names = {each.name for each in sections if each.has_names}
    for name, kind in known.items():
        if name in with_names and kind is not None:
            found[name] = _named(raw.get(name), kind, (name,), problems)
        elif kind is not None:
            found[name] = section_of(raw.get(name), kind, (name,), problems) or kind()
    found["mask"] = _mask(raw.get("mask"), problems)
    found["workers"] = _workers(raw.get("workers"), problems)
    problems.extend(_misread_properties(tree))
    features = {each.kind: found.pop(each.name) for each in sections}
    return Config(features=features, **found), problems


def _mask(raw: Any, problems: list[Problem]) -> tuple[MaskRule, ...]:
    if raw is None:
        return ()
    if not isinstance(raw, list):
        hint = "a list of rules, such as [{topics: [cards], fields: [number]}]"
        problems.append(Problem(("mask",), f"is not {hint}", value=raw))
        return ()
    rules = [
        section_of(each, MaskRule, ("mask", index), problems) for index, each in enumerate(raw)
    ]
    return tuple(rule for rule in rules if rule is not None)


def _workers(raw: Any, problems: list[Problem]) -> dict[str, WorkerConfig]:
    if not raw and (raw is None or isinstance(raw, dict)):
        problems.append(Problem(("workers",), "there is no worker; at least one is needed"))
        return {}
    found = _named(raw, WorkerConfig, ("workers",), problems)
    return {
        name: evolve(worker, name=name, handler=worker.handler or name)
        for name, worker in found.items()
    }


def _named(raw: Any, kind: type[T], path: Path, problems: list[Problem]) -> dict[str, T]:
    """Convert a mapping of names to sections of one kind."""
    if raw is not None and not isinstance(raw, dict):
        problems.append(_no_mapping(path, f"the {path[-1]} by their names"))
        return {}
    found: dict[str, T] = {}
    for name, section in (raw or {}).items():
        if not names.is_worker_name(name):
            noun = str(path[-1]).removesuffix("s")
            message = f"a {noun}'s name is made of letters, digits, dashes and underscores"
            problems.append(Problem((*path, name), message))
        one = section_of(section, kind, (*path, name), problems)
        if one is not None:
            found[name] = one
    return found


def section_of(raw: Any, section: type[T], path: Path, problems: list[Problem]) -> T | None:
    """Convert a raw value to a section; on failure add to ``problems`` and return None."""
    try:
        return _CONVERTER.structure(raw, section)
    except (ClassValidationError, InvalidError) as error:
        problems.extend(problem.below(path) for problem in _problems(error))
        return None


def _problems(error: BaseException) -> Iterator[Problem]:
    if isinstance(error, InvalidError):
        yield from error.problems
    elif isinstance(error, ForbiddenExtraKeysError):
        for key in sorted(error.extra_fields):
            yield _unknown(key, subsections(error.cl))
    elif isinstance(error, ClassValidationError):
        at_fields, others = error.group_exceptions()
        for inner, note in at_fields:
            if isinstance(inner, KeyError):
                kind = options(error.cl)[note.name][1].kind
                yield Problem((note.name,), "is missing" + (f": {kind.expected}" if kind else ""))
            else:
                yield from (problem.below((note.name,)) for problem in _problems(inner))
        for other in others:
            yield from _problems(other)
    else:
        raise error


def _unknown(key: str, known: Mapping[str, type | None]) -> Problem:
    sections = [
        f"{name}.{key}"
        for name, kind in known.items()
        if kind is not None and kind is not KafkaConfig and key in options(kind)
    ]
    if sections:
        hint = f"did you mean {sections[0]}?"
    elif "." in key and "kafka" in known:
        hint = "Kafka properties stand below kafka:"
    else:
        hint = did_you_mean(key, known) or f"known are {', '.join(known)}"
    return Problem((key,), f"unknown key; {hint}")


def _misread_properties(tree: Tree) -> Iterator[Problem]:
    for path, origin in tree.origins.items():
        key = path[-1] if path else None
        if isinstance(key, str) and is_property(path):
            wrong = misread(key, tree.get(path), origin)
            if wrong is not None:
                yield Problem(path, wrong)


def is_property(path: Path) -> bool:
    """Return whether a path leads to or below a value of a ``kafka`` key."""
    return (len(path) > 1 and path[0] == "kafka") or (
        len(path) > 3 and path[0] == "workers" and path[2] == "kafka"
    )


def _no_mapping(path: Path, expected: str) -> Problem:
    return Problem(path, f"expected a mapping with {expected}")


def _hook(section: type[Any]) -> Callable[[Any, Any], Any]:
    attrs.resolve_types(section)
    structure_fields = make_dict_structure_fn(
        section,
        _CONVERTER,
        _cattrs_forbid_extra_keys=True,
        **{field.name: _field_override(field) for field in attrs.fields(section)},
    )

    def hook(raw: Any, _: Any) -> Any:
        if raw is not None and not isinstance(raw, dict):
            raise InvalidError(_no_mapping((), f"the keys {', '.join(options(section))}"))
        return structure_fields(raw or {}, section)

    return hook


def _field_override(field: attrs.Attribute[Any]) -> Any:
    option = field.metadata.get("option")
    if option is None:
        return override(omit=True)
    if option.kind is None:
        return override()
    read = option.kind.read
    return override(struct_hook=lambda raw, _: read(raw))


_CONVERTER: Final = cattrs.Converter()
_CONVERTER.register_structure_hook_factory(attrs.has, _hook)
_CONVERTER.register_structure_hook(KafkaConfig, lambda raw, _: read_kafka(raw))
