"""The configuration of the pipeline, ``pipeline.yaml``: from the file to one checked value."""

from __future__ import annotations

import os
import pathlib
from collections.abc import Mapping
from typing import Any, Final, Literal

from attrs import field, frozen

from window_consumer.config import kinds, names
from window_consumer.config.interpolation import Interpolation
from window_consumer.config.kinds import ValueKind
from window_consumer.config.options import about
from window_consumer.config.problems import InvalidError, Problem, to_error
from window_consumer.config.sections.kafka_properties import KafkaConfig, as_text, is_secret_key
from window_consumer.config.sections.mask import MaskRule
from window_consumer.config.structure import section_of
from window_consumer.config.tree import Tree, ValueOrigin, walk
from window_consumer.config.yaml_file import read_file
from window_consumer.model.redaction import Mask

DAY_S: Final = 86400.0


def _some(noun: str) -> ValueKind:
    return kinds.text(noun, lambda text: None if text.strip() else "is empty")


def _properties() -> ValueKind:
    """Spark's properties by dotted name."""
    expected = "a mapping of Spark's properties, such as spark.executor.memory: 4g"

    def read(raw: Any) -> Mapping[str, str]:
        if not isinstance(raw, dict):
            raise InvalidError.of(raw, expected)
        problems = [
            Problem((key,), "is no property of Spark's: their names begin with spark.")
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
            kind=_some("a master such as local[*]"),
            default="local[*]",
        ),
    )
    properties: Mapping[str, str] = field(
        factory=dict,
        repr=False,
        metadata=about("Spark's own properties, by their dotted names.", kind=_properties()),
    )


@frozen(kw_only=True)
class TraceSection:
    """How the message trace is processed."""

    topic: str = field(
        default="wc.trace",
        metadata=about("The topic of the events.", kind=kinds.kafka_name("topic")),
    )
    keep: float = field(
        default=30 * DAY_S,
        metadata=about(
            "How long events are kept in the table; `pipeline maintain` removes older days.",
            kind=kinds.duration(DAY_S, 36500 * DAY_S),
            reason="a complaint comes within a month",
        ),
    )
    keys: Literal["raw", "hmac", "off"] = field(
        default="raw",
        metadata=about(
            "How keys appear in the trace, as in workers.yaml; `trace search --key` needs to know.",
            kind=kinds.choice("raw", "hmac", "off"),
            reason="a search for a code in plain keys finds nothing",
        ),
    )
    key_secret: str | None = field(
        default=None,
        repr=False,
        metadata=about(
            "The secret for `keys: hmac`, as in workers.yaml.",
            kind=_some("a secret"),
            default="none: required with keys: hmac",
        ),
    )


@frozen(kw_only=True)
class AuditSection:
    """How the message audit is processed."""

    topic: str = field(
        default="wc.audit",
        metadata=about("The topic of the counts.", kind=kinds.kafka_name("topic")),
    )
    grace: float = field(
        default=3600.0,
        metadata=about(
            "How long after its end a bucket may still get counts; then it is final.",
            kind=kinds.duration(0.0, 36500 * DAY_S),
            reason="most retries are over, and crashed processes have been restarted",
        ),
    )
    alerts_topic: str | None = field(
        default=None,
        metadata=about(
            "The topic to which `audit report` writes losses; it must exist.",
            kind=kinds.kafka_name("topic"),
            default="none: nothing is written",
        ),
    )
    unaudited: tuple[str, ...] = field(
        default=(),
        metadata=about(
            "Topics that also have producers without an audit: none of their records are reported "
            "as lost.",
            kind=kinds.list_of(kinds.kafka_name("topic"), "topics", may_be_empty=True),
        ),
    )


@frozen(kw_only=True)
class DeadLetterSection:
    """Which dead-letter topics are read, and what is kept of their records."""

    topics: tuple[str, ...] = field(
        default=(),
        metadata=about(
            "Names of dead-letter topics, whatever writes them.",
            kind=kinds.list_of(
                kinds.kafka_name("topic"), "names of dead-letter topics", may_be_empty=True
            ),
            default="none",
        ),
    )
    patterns: tuple[str, ...] = field(
        default=(r"^.+\.dlq$",),
        metadata=about(
            "Regular expressions that are searched in the names of topics, in addition to "
            "`topics`.",
            kind=kinds.list_of(
                kinds.text("a regular expression that begins with ^", names.wrong_pattern, r"^\^"),
                "regular expressions",
                may_be_empty=True,
            ),
            reason="the workers' dead letters are in <group>.<topic>.dlq",
            default=r"`[^.+\.dlq$]`",
        ),
    )
    keep: float = field(
        default=90 * DAY_S,
        metadata=about(
            "How long dead letters are kept in the table; `pipeline maintain` removes older ones. "
            "The topics keep theirs for their own retention.",
            kind=kinds.duration(DAY_S, 36500 * DAY_S),
            reason="longer than the topics, and enough to see whether a cause returns",
        ),
    )
    keys: Literal["raw", "hmac", "off"] = field(
        default="raw",
        metadata=about(
            "How keys appear in the table and in reports: unchanged, as codes, or not at all.",
            kind=kinds.choice("raw", "hmac", "off"),
            reason="whose records fail is the first question",
        ),
    )
    key_secret: str | None = field(
        default=None,
        repr=False,
        metadata=about(
            "The secret for `keys: hmac`.",
            kind=_some("a secret"),
            default="none: required with keys: hmac",
        ),
    )
    values: bool = field(
        default=False,
        metadata=about(
            "Whether the beginnings of values are kept and shown in reports, masked by `mask`.",
            kind=kinds.boolean(),
            reason="a report reaches many people",
        ),
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
            kind=_some("the name of a directory, or an address such as s3a://bucket/path"),
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
            reason="lost events should be known before anybody trusts the answers",
        ),
    )
    spark: SparkSection = field(factory=SparkSection, metadata=about("Which Spark runs the jobs."))
    trace: TraceSection = field(
        factory=TraceSection, metadata=about("How the message trace is processed.")
    )
    audit: AuditSection = field(
        factory=AuditSection, metadata=about("How the message audit is processed.")
    )
    dlq: DeadLetterSection = field(
        factory=DeadLetterSection,
        metadata=about("Which dead-letter topics are read, and what is kept of their records."),
    )
    mask: tuple[MaskRule, ...] = field(
        default=(),
        metadata=about(
            "What must not be kept of dead letters: rules as in `mask` of workers.yaml."
        ),
    )


@frozen
class LoadedPipeline:
    """A configuration of the pipeline that passed all checks that need no cluster."""

    config: PipelineConfig
    secrets: frozenset[str] = field(repr=False)
    file: pathlib.Path

    @property
    def directory(self) -> str:
        """The root of tables and checkpoints, absolute."""
        given = self.config.directory
        return given if "://" in given else str((self.file.parent / given).resolve())


def load_pipeline(path: pathlib.Path, environ: Mapping[str, str] = os.environ) -> LoadedPipeline:
    """Read a configuration file; raises ConfigError with all problems, secrets masked."""
    try:
        tree, problems = read_file(path)
    except InvalidError as error:
        raise to_error(error.problems, Tree({}, {(): ValueOrigin(str(path))}), Mask(())) from None
    interpolation = Interpolation(environ, path.parent)
    tree, missing = interpolation.apply(tree)
    problems += missing
    secrets = frozenset(interpolation.secrets | set(_secrets(tree))) - {""}
    config = section_of(tree.value, PipelineConfig, (), problems)
    if config is not None and "bootstrap.servers" not in config.kafka.common:
        problems.append(Problem(("kafka", "bootstrap.servers"), "is missing"))
    if config is not None and config.trace.keys == "hmac" and not config.trace.key_secret:
        problems.append(Problem(("trace", "key_secret"), "is missing: keys are codes (hmac)"))
    if config is not None:
        problems += _dead_letters(config)
    if problems or config is None:
        raise to_error(problems, tree, Mask(secrets))
    return LoadedPipeline(config, secrets, path)


def _dead_letters(config: PipelineConfig) -> list[Problem]:
    found = []
    if config.dlq.keys == "hmac" and not config.dlq.key_secret:
        found.append(Problem(("dlq", "key_secret"), "is missing: keys are codes (hmac)"))
    if not config.dlq.topics and not config.dlq.patterns:
        found.append(Problem(("dlq", "topics"), "are missing, and so are patterns: name some"))
    for index, rule in enumerate(config.mask):
        if not rule.fields and not rule.whole:
            message = "hides nothing: give fields: [...], or whole: [value] for a part of a record"
            found.append(Problem(("mask", index), message))
    return found


def _secrets(tree: Tree) -> list[str]:
    return [
        as_text(value)
        for path, value in walk(tree.value)
        if isinstance(value, str | int | float) and is_secret_key(".".join(map(str, path)))
    ]
