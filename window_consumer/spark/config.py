"""The configuration of the pipeline, ``pipeline.yaml``, without the sections of features."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from attrs import field, frozen

from window_consumer.config import kinds
from window_consumer.config.checks.login import problems_of
from window_consumer.config.interpolation import Interpolation
from window_consumer.config.kinds import ValueKind
from window_consumer.config.options import Sections, about, declared_by_features
from window_consumer.config.problems import InvalidError, Problem, to_error
from window_consumer.config.sections.kafka_properties import KafkaConfig, as_text, is_secret_key
from window_consumer.config.sections.mask import MaskRule, empty_rules
from window_consumer.config.structure import section_of
from window_consumer.config.tree import Tree, ValueOrigin, walk
from window_consumer.config.yaml_file import read_file
from window_consumer.model.redaction import Mask


def _properties() -> ValueKind:
    """Spark's properties by dotted name."""
    expected = "a mapping of Spark's properties, such as spark.executor.memory: 4g"

    def read(raw: Any) -> Mapping[str, str]:
        if not isinstance(raw, dict):
            raise InvalidError.of(raw, expected)
        problems = [
            Problem((key,), "is not a Spark property: their names begin with spark.")
            for key in raw
            if not str(key).startswith("spark.")
        ]
        problems += [
            Problem((key,), "expected a text, a number, true or false")
            for key, value in raw.items()
            if not isinstance(value, str | int | float)
        ]
        if problems:
            raise InvalidError(*problems)
        return {key: as_text(value) for key, value in raw.items()}

    schema = {"type": "object", "additionalProperties": {"type": ["string", "number", "boolean"]}}
    return ValueKind("properties", expected, read, str, schema)


@frozen(kw_only=True)
class SparkSection:
    """Which Spark runs the jobs."""

    master: str | None = field(
        default=None,
        metadata=about(
            "Where the jobs run: local[*], spark://host:7077, k8s://... `--master` overrides it, "
            "and under spark-submit its own settings do.",
            kind=kinds.text("a master such as local[*]"),
            default="local[*]",
        ),
    )
    properties: Mapping[str, str] = field(
        factory=dict,
        repr=False,
        metadata=about("Spark's own properties, by their dotted names.", kind=_properties()),
    )


@frozen(kw_only=True)
class PipelineConfig:
    """The whole of ``pipeline.yaml``."""

    kafka: KafkaConfig = field(
        factory=KafkaConfig,
        metadata=about(
            "The client's properties, as in workers.yaml; Spark's client also gets them."
        ),
    )
    directory: str = field(
        metadata=about(
            "The root of tables and checkpoints: a directory (a relative name starts at the "
            "file's directory), or an address that all executors can write to (s3a://...).",
            kind=kinds.text("the name of a directory, or an address such as s3a://bucket/path"),
            default="none: required",
        )
    )
    batch_records: int = field(
        default=2000,
        metadata=about(
            "The most records of an event topic in one batch. Each holds thousands of events.",
            kind=kinds.whole_number(1, 10_000_000),
            reason="some million events: a few hundred megabytes of memory",
        ),
    )
    fail_on_data_loss: bool = field(
        default=True,
        metadata=about(
            "Whether a job ends if records that it has not read are gone, through retention or "
            "because a topic was recreated. With false it reports the loss and continues.",
            kind=kinds.boolean(),
            reason="lost events should be noticed before anyone trusts the answers",
        ),
    )
    spark: SparkSection = field(factory=SparkSection, metadata=about("Which Spark runs the jobs."))
    features: Mapping[type, Any] = field(factory=dict, metadata=declared_by_features("file"))
    """The sections that features declare, by their classes."""
    mask: tuple[MaskRule, ...] = field(
        default=(),
        metadata=about(
            "The parts of dead letters that must not be kept: rules as in `mask` of workers.yaml."
        ),
    )


def read_pipeline(
    path: Path, environ: Mapping[str, str], sections: Sections
) -> tuple[PipelineConfig, frozenset[str]]:
    """Read a configuration file; return it with its secrets. ``sections`` are those of features.

    Raises ConfigError with all problems, secrets masked.
    """
    try:
        tree, problems = read_file(path)
    except InvalidError as error:
        raise to_error(error.problems, Tree({}, {(): ValueOrigin(str(path))}), Mask(())) from None
    interpolation = Interpolation(environ, path.parent)
    tree, missing = interpolation.apply(tree)
    problems += missing
    secrets = frozenset(interpolation.secrets | set(_secrets(tree))) - {""}
    config = section_of(tree.value, PipelineConfig, (), problems, sections)
    if config is not None:
        problems.extend(_conflicts(config, tree, sections))
    if problems or config is None:
        raise to_error(problems, tree, Mask(secrets))
    return config, secrets


def _conflicts(config: PipelineConfig, tree: Tree, sections: Sections) -> Iterator[Problem]:
    if "bootstrap.servers" not in config.kafka.common:
        yield Problem(("kafka", "bootstrap.servers"), "is missing")
    yield from problems_of([(("kafka",), config.kafka)], tree)
    for each in sections.file:
        found = each.check(config.features[each.kind], tree.get((each.name,)) or ())
        yield from (problem.below((each.name,)) for problem in found)
    yield from empty_rules(config.mask)


def _secrets(tree: Tree) -> list[str]:
    return [
        as_text(value)
        for path, value in walk(tree.value)
        if isinstance(value, str | int | float) and is_secret_key(".".join(map(str, path)))
    ]
