"""Converts raw values to the configuration's classes with cattrs; problems in our own words."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final, TypeVar

import attrs
import cattrs
from attrs import evolve
from cattrs.errors import ClassValidationError, ForbiddenExtraKeysError
from cattrs.gen import make_dict_structure_fn, override

from window_consumer.config import names
from window_consumer.config.options import Section, options
from window_consumer.config.problems import InvalidError, Problem, did_you_mean
from window_consumer.config.schema import Config, WorkerConfig
from window_consumer.config.sections import (
    BatchConfig,
    DlqConfig,
    ErrorsConfig,
    RetryConfig,
    TopicsConfig,
    WindowConfig,
)
from window_consumer.config.sections.audit import AuditConfig
from window_consumer.config.sections.guards import BreakerConfig, StallConfig
from window_consumer.config.sections.kafka_properties import KafkaConfig, misread, read_kafka
from window_consumer.config.sections.listening import AdminConfig, HealthConfig, TlsConfig
from window_consumer.config.sections.mask import MaskRule
from window_consumer.config.sections.once import OnceConfig
from window_consumer.config.sections.opentelemetry import OpenTelemetryConfig
from window_consumer.config.sections.outbox import OutboxConfig
from window_consumer.config.sections.trace import TraceConfig
from window_consumer.config.tree import Path, Tree

T = TypeVar("T")

SECTIONS: Final = (
    TopicsConfig,
    DlqConfig,
    MaskRule,
    ErrorsConfig,
    HealthConfig,
    TlsConfig,
    AdminConfig,
    TraceConfig,
    OpenTelemetryConfig,
    AuditConfig,
    OnceConfig,
    OutboxConfig,
    WindowConfig,
    BatchConfig,
    RetryConfig,
    BreakerConfig,
    StallConfig,
    WorkerConfig,
)
"""The classes with fixed keys, inner ones first."""


def structure(tree: Tree, sections: Sequence[Section] = ()) -> tuple[Config, list[Problem]]:
    """Return the configuration and its problems; wrong values are left out.

    ``sections`` are those of features. Without problems, the configuration is complete with respect
    to single keys.
    """
    raw: dict[str, Any] = tree.value
    known = {*options(Config), *(each.name for each in sections)}
    problems = [_unknown(key, Config) for key in raw if key not in known]
    kafka = section_of(raw.get("kafka"), KafkaConfig, ("kafka",), problems)
    topics = section_of(raw.get("topics"), TopicsConfig, ("topics",), problems)
    dlq = section_of(raw.get("dlq"), DlqConfig, ("dlq",), problems)
    mask = _mask(raw.get("mask"), problems)
    errors = section_of(raw.get("errors"), ErrorsConfig, ("errors",), problems)
    health = section_of(raw.get("health"), HealthConfig, ("health",), problems)
    admin = section_of(raw.get("admin"), AdminConfig, ("admin",), problems)
    trace = section_of(raw.get("trace"), TraceConfig, ("trace",), problems)
    opentelemetry = section_of(
        raw.get("opentelemetry"), OpenTelemetryConfig, ("opentelemetry",), problems
    )
    audit = section_of(raw.get("audit"), AuditConfig, ("audit",), problems)
    outbox = section_of(raw.get("outbox"), OutboxConfig, ("outbox",), problems)
    workers = _workers(raw.get("workers"), problems)
    features = {each.kind: _of_feature(each, raw.get(each.name), problems) for each in sections}
    problems.extend(_misread_properties(tree))
    config = Config(
        features=features,
        kafka=kafka or KafkaConfig(),
        topics=topics or TopicsConfig(),
        dlq=dlq or DlqConfig(),
        mask=mask,
        errors=errors or ErrorsConfig(),
        health=health or HealthConfig(),
        admin=admin or AdminConfig(),
        trace=trace or TraceConfig(),
        opentelemetry=opentelemetry or OpenTelemetryConfig(),
        audit=audit or AuditConfig(),
        outbox=outbox or OutboxConfig(),
        workers=workers,
    )
    return config, problems


def _of_feature(section: Section, raw: Any, problems: list[Problem]) -> Any:
    register(section.kind)
    found = section_of(raw, section.kind, (section.name,), problems)
    if found is None:
        return section.kind()
    problems.extend(problem.below((section.name,)) for problem in section.check(found))
    return found


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
    if raw is not None and not isinstance(raw, dict):
        problems.append(_no_mapping(("workers",), "the workers by their names"))
        return {}
    if not raw:
        problems.append(Problem(("workers",), "there is no worker; at least one is needed"))
        return {}
    workers: dict[str, WorkerConfig] = {}
    for name, section in raw.items():
        path = ("workers", name)
        if not names.is_worker_name(name):
            message = "a worker's name is made of letters, digits, dashes and underscores"
            problems.append(Problem(path, message))
        worker = section_of(section, WorkerConfig, path, problems)
        if worker is not None:
            workers[name] = evolve(worker, name=name, handler=worker.handler or name)
    return workers


def section_of(raw: Any, section: type[T], path: Path, problems: list[Problem]) -> T | None:
    """Convert a raw value to a registered section; on failure add to ``problems``, return None."""
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
            yield _unknown(key, error.cl)
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


def _unknown(key: str, section: type) -> Problem:
    known = options(section)
    sections = [
        f"{name}.{key}"
        for name, (attribute, _) in known.items()
        if attribute.type in SECTIONS and key in options(attribute.type)
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


def register(section: type[Any]) -> None:
    """Register a class with fixed keys; register the classes of its sections before it."""
    attrs.resolve_types(section)
    _CONVERTER.register_structure_hook(section, _hook(section))


_CONVERTER: Final = cattrs.Converter()
_CONVERTER.register_structure_hook(KafkaConfig, lambda raw, _: read_kafka(raw))
for _section_class in SECTIONS:
    register(_section_class)
