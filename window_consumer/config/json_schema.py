"""The JSON Schema of the configuration file, generated from the configuration's classes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import attrs
from attrs import Attribute

from window_consumer.config import names
from window_consumer.config.kinds import ValueKind
from window_consumer.config.options import NO_SECTIONS, Option, Sections, options
from window_consumer.config.schema import Config
from window_consumer.config.sections.kafka_properties import CLIENTS, KafkaConfig
from window_consumer.config.sections.mask import MaskRule
from window_consumer.config.sections.worker import WorkerConfig

_KAFKA: Final = {"$ref": "#/$defs/kafka"}
_PROPERTIES: Final = {"$ref": "#/$defs/properties"}


def json_schema(sections: Sections = NO_SECTIONS) -> dict[str, Any]:
    """Return a JSON Schema (draft 2020-12) for editors: keys, types, limits, defaults, meanings.

    ``sections`` are those of features.

    Limits of durations and sizes appear only in descriptions. Keys that decorators may give are not
    required. ``load`` checks rules between keys.
    """
    top = _section(Config, sections)
    for each in sections.file:
        if each.has_names:
            by_name = _by_name(_section(each.kind))
            top["properties"][each.name] = _described(by_name, each.meaning)
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "window_consumer",
        **top,
        "required": ["workers"],
        "$defs": {
            "reference": {
                "description": "Filled in when the file is loaded.",
                "type": "string",
                "pattern": r"\$\{[^}]+\}",
            },
            "scalar": {"type": ["string", "number", "boolean"]},
            "properties": {
                "type": ["object", "null"],
                "additionalProperties": {"$ref": "#/$defs/scalar"},
                "propertyNames": {"not": {"enum": list(CLIENTS)}},
            },
            "kafka": {
                "type": ["object", "null"],
                "properties": {
                    key: _described(
                        _PROPERTIES if option.kind is None else option.kind.schema, option.meaning
                    )
                    for key, (_, option) in options(KafkaConfig).items()
                },
                "additionalProperties": {"$ref": "#/$defs/scalar"},
            },
            "worker": _section(WorkerConfig, sections)
            | {"not": {"type": "object", "required": ["topics", "patterns"]}},
        },
    }


def _section(section: type, sections: Sections = NO_SECTIONS) -> dict[str, Any]:
    return {
        "type": ["object", "null"],
        "properties": {
            key: _key(attribute, option)
            for key, (attribute, option) in options(section, sections).items()
        },
        "additionalProperties": False,
    }


def _key(attribute: Attribute[Any], option: Option) -> dict[str, Any]:
    if option.kind is not None:
        schema = _described(option.kind.schema, _description(option, option.kind))
        if option.default is None:
            schema["default"] = _raw_default(attribute.default, option.kind)
        return schema
    if attribute.type is KafkaConfig:
        return _described(_KAFKA, option.meaning)
    if attribute.type is not None and attrs.has(attribute.type):
        return _described(_section(attribute.type), option.meaning)
    if attribute.type == tuple[MaskRule, ...]:
        rules = {"type": ["array", "null"], "items": _section(MaskRule)}
        return _described(rules, option.meaning)
    workers = _by_name({"$ref": "#/$defs/worker"}) | {"type": "object", "minProperties": 1}
    return _described(workers, option.meaning)


def _by_name(section: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "type": ["object", "null"],
        "propertyNames": {"pattern": names.WORKER},
        "additionalProperties": dict(section),
    }


def _description(option: Option, kind: ValueKind) -> str:
    text = f"{option.meaning} Expected: {kind.expected}."
    return text if option.default is None else f"{text} Default: {option.default}."


def _described(schema: Mapping[str, Any], description: str) -> dict[str, Any]:
    return {**schema, "description": description}


def _raw_default(value: Any, kind: ValueKind) -> Any:
    if isinstance(value, str) or kind.name in {"boolean", "whole number", "whole number or auto"}:
        return value
    return [] if value == () else kind.write(value)
