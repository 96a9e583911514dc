"""Converts raw values to the configuration's classes with cattrs; reports problems our way."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final, TypeVar

import attrs
import cattrs
from attrs import evolve
from cattrs.errors import ClassValidationError, ForbiddenExtraKeysError
from cattrs.gen import make_dict_structure_fn, override

from window_consumer.config import names
from window_consumer.config.options import (
    NO_SECTIONS,
    Sections,
    feature_sections,
    options,
    subsections,
)
from window_consumer.config.problems import InvalidError, Problem, did_you_mean
from window_consumer.config.schema import Config
from window_consumer.config.sections.kafka_properties import KafkaConfig, misread, read_kafka
from window_consumer.config.sections.mask import MaskRule
from window_consumer.config.sections.worker import WorkerConfig
from window_consumer.config.tree import Path, Tree

T = TypeVar("T")


def structure(tree: Tree, sections: Sections = NO_SECTIONS) -> tuple[Config, list[Problem]]:
    """Return the configuration and its problems; wrong values are left out.

    ``sections`` are those of features. Without problems, each single key is valid.
    """
    raw: dict[str, Any] = tree.value
    known = subsections(Config, sections)
    problems = [_unknown(key, known) for key in raw if key not in known]
    found: dict[str, Any] = {}
    with_names = {each.name for each in sections.file if each.has_names}
    for name, kind in known.items():
        if name in with_names and kind is not None:
            found[name] = _named(raw.get(name), kind, (name,), problems, sections)
        elif kind is not None:
            found[name] = section_of(raw.get(name), kind, (name,), problems) or kind()
    try:
        found["mask"] = _mask(raw.get("mask"))
    except InvalidError as error:
        problems.extend(problem.below(("mask",)) for problem in error.problems)
    found["workers"] = _workers(raw.get("workers"), problems, sections)
    problems.extend(_misread_properties(tree))
    features = {each.kind: found.pop(each.name) for each in sections.file}
    return Config(features=features, **found), problems


def _mask(raw: Any) -> tuple[MaskRule, ...]:
    if raw is None:
        return ()
    if not isinstance(raw, list):
        raise InvalidError.of(raw, "a list of rules, such as [{topics: [cards], fields: [number]}]")
    problems: list[Problem] = []
    rules = [section_of(each, MaskRule, (index,), problems) for index, each in enumerate(raw)]
    if problems:
        raise InvalidError(*problems)
    return tuple(rule for rule in rules if rule is not None)


def _workers(raw: Any, problems: list[Problem], sections: Sections) -> dict[str, WorkerConfig]:
    if not raw and (raw is None or isinstance(raw, dict)):
        problems.append(Problem(("workers",), "there is no worker; at least one is needed"))
        return {}
    found = _named(raw, WorkerConfig, ("workers",), problems, sections)
    return {
        name: evolve(
            worker,
            name=name,
            handler=worker.handler or name,
            handled_by=next(iter(sections.handling(worker)), ""),
            has_batch=(raw[name] or {}).get("batch") is not None,
            **sections.decided(worker),
        )
        for name, worker in found.items()
    }


def _named(
    raw: Any, kind: type[T], path: Path, problems: list[Problem], sections: Sections
) -> dict[str, T]:
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
        one = section_of(section, kind, (*path, name), problems, sections)
        if one is not None:
            found[name] = one
    return found


def section_of(
    raw: Any,
    section: type[T],
    path: Path,
    problems: list[Problem],
    sections: Sections = NO_SECTIONS,
) -> T | None:
    """Convert a raw value to a section; on failure add to ``problems`` and return None.

    ``sections`` are those of features; it uses those that belong in this section.
    """
    declared = {each.name: each for each in feature_sections(section, sections)}
    given = raw if isinstance(raw, dict) else {}
    own = {key: value for key, value in given.items() if key not in declared}
    known = len(problems)
    found: Any = None
    try:
        found = _CONVERTER.structure(own if given else raw, section)
    except (ClassValidationError, InvalidError, _NoMappingError) as error:
        problems.extend(problem.below(path) for problem in _problems(error, sections))
    if declared:
        features = {}
        for name, each in declared.items():
            one = section_of(given.get(name), each.kind, (*path, name), problems)
            features[each.kind] = each.written(one) if name in given and one is not None else one
        found = evolve(found, features=features) if len(problems) == known else None
    result: T | None = found
    return result


class _NoMappingError(ValueError):
    """The value of a section is not a mapping."""

    def __init__(self, section: type[Any]):
        super().__init__(section.__name__)
        self.section = section


def _problems(error: BaseException, sections: Sections) -> Iterator[Problem]:
    if isinstance(error, InvalidError):
        yield from error.problems
    elif isinstance(error, _NoMappingError):
        yield _no_mapping((), f"the keys {', '.join(options(error.section, sections))}")
    elif isinstance(error, ForbiddenExtraKeysError):
        for key in sorted(error.extra_fields):
            yield _unknown(key, subsections(error.cl, sections))
    elif isinstance(error, ClassValidationError):
        at_fields, others = error.group_exceptions()
        for inner, note in at_fields:
            if isinstance(inner, KeyError):
                kind = options(error.cl)[note.name][1].kind
                yield Problem((note.name,), "is missing" + (f": {kind.expected}" if kind else ""))
            else:
                key = note.name.rstrip("_")
                yield from (problem.below((key,)) for problem in _problems(inner, sections))
        for other in others:
            yield from _problems(other, sections)
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
        hint = "Kafka properties belong below kafka:"
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
            raise _NoMappingError(section)
        return structure_fields(raw or {}, section)

    return hook


def _field_override(field: attrs.Attribute[Any]) -> Any:
    option = field.metadata.get("option")
    if option is None:
        return override(omit=True)
    key = field.name.rstrip("_")
    if option.kind is None:
        return override(rename=key)
    read = option.kind.read
    return override(rename=key, struct_hook=lambda raw, _: read(raw))


_CONVERTER: Final = cattrs.Converter()
_CONVERTER.register_structure_hook_factory(attrs.has, _hook)
_CONVERTER.register_structure_hook_func(
    lambda kind: kind == tuple[MaskRule, ...], lambda raw, _: _mask(raw)
)
_CONVERTER.register_structure_hook(KafkaConfig, lambda raw, _: read_kafka(raw))
